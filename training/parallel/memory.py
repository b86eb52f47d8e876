"""Sentences for work that does not fit into memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from turret.training.errors import TrainingError


@contextmanager
def naming_lack_of_memory(sentence: str) -> Iterator[None]:
    """Turn a failed allocation of NumPy or torch, on the CPU or on a GPU, into a TrainingError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_of_memory(error):
            raise
        raise TrainingError(sentence) from error


def too_large_training(processes: int) -> str:
    """The sentence for a training that does not fit into the memory of so many processes."""
    each = "one process" if processes == 1 else f"each of {processes} processes"
    return (
        f"the training does not fit into the memory of {each}; lower training.batch_size, "
        "or split large tables over more processes: torchrun --standalone --nproc-per-node "
        f"{2 * processes} -m -- turret train ... (docs/distributed.md)."
    )


def _is_of_memory(error: Exception) -> bool:
    # On the CPU torch raises a plain RuntimeError.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
