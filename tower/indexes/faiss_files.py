"""FAISS's own files: mapped into memory, held to their size and to the class that they should be of."""

from pathlib import Path
from threading import Lock
from typing import Any

import faiss

from tower.errors import BundleError

# FAISS has one limit for the whole process: two bundles that are opened at once take turns.
_LIMITED = Lock()


def read_faiss(path: Path, expected: type[Any], tables: int = 0, mapped: bool = True) -> Any:
    """Open the index in `path` and check that it is an `expected`; `mapped`, several processes share it.

    `tables`: how many bytes FAISS may reckon with beside the file's own. Raises BundleError when `path`
    holds anything else.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise BundleError(f"{path} can't be read: {error.strerror}; copy the bundle again") from None
    try:
        with _LIMITED:
            # A crafted header could otherwise ask for terabytes; no vector in a file is larger than the file.
            faiss.set_deserialization_vector_byte_limit(size + tables)
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except (RuntimeError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BundleError(f"{path} is not a FAISS index ({reason}); export the bundle again") from None
    if type(index) is not expected:
        raise BundleError(
            f"{path} holds a {type(index).__name__} where the manifest's kind is an {expected.__name__}; "
            "export the bundle again"
        )
    return index
