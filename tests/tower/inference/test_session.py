import time

import numpy as np
import pytest

from tests.support.hostile_towers import honest, slow
from turret.tower.errors import BundleError
from turret.tower.inference import session
from turret.tower.inference.session import Session

HISTORY = {"history": np.full((1, 3, 8), 1e-39, np.float32), "length": np.array([3])}


def test_a_call_that_takes_too_long_is_ended_between_two_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "RUN_SECONDS", 0.05)
    tower = Session(slow(products=400), "user_tower.onnx", "user_vector")
    begun = time.thread_time()
    with pytest.raises(BundleError, match=r"user_tower\.onnx can't be run"):
        tower.run(HISTORY, (1, 8))
    assert time.thread_time() - begun < 5  # it would take minutes
    assert not session._ends


def test_a_call_in_time_is_left_alone() -> None:
    tower = Session(honest().SerializeToString(), "user_tower.onnx", "user_vector")
    for _ in range(3):
        assert tower.run(HISTORY, (1, 8)).shape == (1, 8)
    assert not session._ends
