"""An engine in this process in place of the real ones, and a shop to publish there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import contents
from tests.tower.engines.memory_engine import Server, engine_in_process
from turret.tower.bundle.publish import publish
from turret.tower.engines.access import Access, set_access

URL = "redis://:secret@engine:6379"
ITEMS = 1200


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The state of the engine behind every URL."""
    made = engine_in_process(monkeypatch)
    # Another pause keeps the circuit of one test from the next.
    set_access(Access(failures=3, pause=float(np.random.default_rng().uniform(0.2, 0.3))))
    return made


def user_vectors(count: int = 40) -> NDArray[np.float32]:
    vectors = np.random.default_rng(5).standard_normal((count, 8))
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the bundle v1 of 1,200 items, with 40 user vectors."""
    root = tmp_path / "shop"
    made = contents(ids=tuple(range(ITEMS)))
    fields = {"year": [1900 + row % 120 for row in range(ITEMS)], **made.fields}
    publish(root, replace(made, fields=fields, query_vectors=user_vectors()))
    return root
