from collections.abc import Callable

import numpy as np
import pytest
import torch

from turret.training.errors import TrainingError
from turret.training.parallel.memory import naming_lack_of_memory, too_large_training

PETABYTE = 10**15


@pytest.mark.parametrize("allocate", [lambda: torch.empty(PETABYTE), lambda: np.empty(PETABYTE)])
def test_a_failed_allocation_has_its_sentence(allocate: Callable[[], object]) -> None:
    with pytest.raises(TrainingError, match=r"^too large$"), naming_lack_of_memory("too large"):
        allocate()


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shape"), naming_lack_of_memory("too large"):
        raise RuntimeError("the shape is wrong")


@pytest.mark.parametrize(
    ("processes", "words", "more"), [(1, "one process", 2), (3, "each of 3 processes", 6)]
)
def test_a_training_that_is_too_large_names_twice_the_processes(
    processes: int, words: str, more: int
) -> None:
    sentence = too_large_training(processes)
    assert f"does not fit into the memory of {words};" in sentence
    assert f"torchrun --standalone --nproc-per-node {more} -m -- turret train" in sentence
