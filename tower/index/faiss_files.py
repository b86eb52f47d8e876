"""FAISS's own files, and the lengths of vectors that its kinds suppose."""

import mmap
from pathlib import Path
from threading import Lock
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.format.checksums import lengths_of
from turret.tower.format.safe_open import size_of
from turret.tower.format.sections import map_file

# Of the lengths, over their mean. Unit vectors in float32 spread by 1e-7, biases and dot products by more.
_EQUAL = 1e-3


def spread(vectors: NDArray[np.float32]) -> float:
    """The deviation of the lengths of `vectors` [N, D] over their mean: 0 where all are equal."""
    found = lengths_of(vectors).astype(np.float64)
    return float(found.std() / found.mean()) if found.any() else 0.0


def are_equal(vectors: NDArray[np.float32]) -> bool:
    """Whether all lengths count as equal, so that distances rank as inner products do."""
    return spread(vectors) < _EQUAL


def augmented(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors` [N, D] with one more column, which makes them all as long as the longest: [N, D + 1]."""
    squares = lengths_of(vectors).astype(np.float64) ** 2
    missing = np.sqrt(np.maximum(squares.max() - squares, 0.0)).astype(np.float32)
    return np.column_stack([vectors, missing])


# What inverted lists begin with that name another file, which FAISS then opens to read and to write, before
# anybody can ask what it has read. Behind it come two counts of 8 bytes, the upper halves of which are zero.
_ELSEWHERE, _UPPER = b"ilod", bytes(4)
# Those that begin so have no lists: vectors as they are, and codes of them.
_WITHOUT_LISTS = (b"IxFI", b"IxSQ")

# FAISS has one limit for the whole process: two bundles that are opened at once take turns.
_LIMITED = Lock()
# FAISS also counts the tables of product codes, which it makes for distances only.
_TABLES = 2**26


def read_faiss(path: Path, mapped: bool = True) -> Any:
    """Open the index in `path`; `mapped`, several processes share it.

    Raises BundleError when `path` holds anything else, or names another file.
    """
    size = size_of(path)
    if size:
        with map_file(path) as content:
            if _names_a_file(content):
                raise BundleError(f"{path} keeps its lists in another file; export the bundle again", "parts")
    try:
        with _LIMITED:
            # A crafted header could otherwise ask for terabytes; no vector in a file is larger than the file.
            faiss.set_deserialization_vector_byte_limit(max(size, _TABLES))
            return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except (RuntimeError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BundleError(f"{path} is not a FAISS index ({reason}); export the bundle again") from None


def write_faiss(index: Any, path: Path, flags: int = 0) -> None:
    """Write an index to `path`. Raises BundleError where FAISS can't, such as on a full disk."""
    write: Any = faiss.write_index  # its annotations lack the flags of files
    try:
        write(index, str(path), flags)
    except RuntimeError as error:
        # The error begins with a line of FAISS's source and the path.
        reason = str(error).rpartition(": ")[2].strip()
        raise BundleError(f"{path}: the index can't be written ({reason}); make room on the disk.") from None


def _names_a_file(content: mmap.mmap) -> bool:
    """Whether FAISS could open another file while it reads these bytes as an index of any kind."""
    position = -1 if content[:4] in _WITHOUT_LISTS else content.find(_ELSEWHERE, 0)
    while position >= 0:
        if content[position + 8 : position + 12] == content[position + 16 : position + 20] == _UPPER:
            return True
        position = content.find(_ELSEWHERE, position + 1)
    return False
