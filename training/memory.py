"""Freed memory is kept for the next step."""

import ctypes
import os

# From malloc.h: how much free memory is kept, and from which size on a piece is asked of the system alone.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 32 * 2**20


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed, up to 32 MB a piece; whether it does.

    A training step frees tensors of a few megabytes and asks for the same again. The system would hand each
    out page by page, every page cleared: up to a quarter of a step on the CPU. Whoever sets
    MALLOC_MMAP_THRESHOLD_ or MALLOC_TRIM_THRESHOLD_ has decided otherwise. Only glibc has the call.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(TRIM_THRESHOLD, 2**31 - 1))
