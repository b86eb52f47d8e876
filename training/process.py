"""The process of a training: its threads and its memory.

Importing this module sets nothing, and loads no torch.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from turret.training.errors import TrainingError

# These parameters of mallopt are from malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_REUSED = 32 * 2**20


def keep_freed_memory() -> bool:
    """Make the C library reuse freed blocks of up to 32 MB; return whether it does.

    A training step frees tensors of a few megabytes and allocates the same again. New pages from the system
    are cleared first, which costs up to a quarter of a step on the CPU. MALLOC_MMAP_THRESHOLD_ and
    MALLOC_TRIM_THRESHOLD_ in the environment take precedence. Only glibc has mallopt.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_REUSED)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))


def set_up_process() -> None:
    """Set the wait policy of threads and the reuse of memory. Call it before torch is imported.

    Spinning OpenMP threads take the cores from other processes and from each other: on two busy cores a step
    takes thirty times as long. OMP_WAIT_POLICY in the environment takes precedence.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()


@contextmanager
def naming_lack_of_memory(sentence: str) -> Iterator[None]:
    """Turn a failed allocation of NumPy or torch, on the CPU or on a GPU, into a TrainingError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        import torch

        # On the CPU torch raises a plain RuntimeError.
        of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
        if not of_memory:
            raise
        raise TrainingError(sentence) from error


def too_large_training(processes: int) -> str:
    """The sentence for a training that does not fit into the memory of so many processes."""
    each = "one process" if processes == 1 else f"each of {processes} processes"
    return (
        f"the training does not fit into the memory of {each}; lower training.batch_size or "
        "tower.dimension, or leave out rare items: turret data prepare --min-item-events."
    )
