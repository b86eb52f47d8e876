"""Arrays on disk: plain `.npy` files, opened as memory maps and never through pickle."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import DataError


def save_array(path: Path, values: NDArray[Any]) -> None:
    """Write `values` to the `.npy` file `path`."""
    np.save(path, values, allow_pickle=False)


def open_array(path: Path, dtype: str) -> NDArray[Any]:
    """Map the `.npy` file `path` into memory, read-only.

    Raises DataError when the file is missing, is not an array, or holds something else than `dtype`.
    """
    try:
        values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; prepare the data again") from None
    except (ValueError, EOFError):
        values = _open_empty(path)
    if values.dtype != np.dtype(dtype):
        raise DataError(f"{path} holds {values.dtype} where {dtype} is expected; prepare the data again")
    return values


def _open_empty(path: Path) -> NDArray[Any]:
    """Read what could not be mapped: an array of no elements, which no operating system maps."""
    try:
        values: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a .npy array ({error}); prepare the data again") from None
    return values
