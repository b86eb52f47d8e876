"""FAISS's calls on raw pointers, and its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

from turret.tower.errors import BundleError
from turret.tower.format.safe_open import size_of
from turret.tower.format.sections import map_file
from turret.tower.hostile import names_a_file

faiss: Any = _faiss

Found = tuple[NDArray[np.int64], NDArray[np.float32]]

# FAISS has one limit for the whole process: two bundles that are opened at once take turns.
_LIMITED = Lock()
# FAISS also counts the tables of product codes, which it makes for distances only.
_TABLES = 2**26


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep FAISS from its own threads, which take longer to wake than a search takes."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def read_faiss(path: Path) -> Any:
    """Map the index in `path`. Raises BundleError when it holds anything else, or names another file."""
    size = size_of(path)
    if size:
        with map_file(path) as content:
            if names_a_file(content):
                raise BundleError(f"{path} keeps its lists in another file; export the bundle again")
    try:
        with _LIMITED:
            # A crafted header could otherwise ask for terabytes; no vector in a file is larger than the file.
            faiss.set_deserialization_vector_byte_limit(max(size, _TABLES))
            return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BundleError(f"{path} is not a FAISS index ({reason}); export the bundle again") from None


def write_faiss(index: Any, path: Path) -> None:
    """Write an index to `path`. Raises BundleError where FAISS can't, such as on a full disk."""
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        # The error begins with a line of FAISS's source and the path.
        reason = str(error).rpartition(": ")[2].strip()
        raise BundleError(f"{path}: the index can't be written ({reason}); make room on the disk.") from None
