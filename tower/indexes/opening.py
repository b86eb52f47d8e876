"""The index of a bundle, opened as the manifest says."""

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from tower.errors import BundleError
from tower.index import ExactIndex
from tower.indexes.approximate import ApproximateIndex
from tower.indexes.faiss_files import read_faiss
from tower.indexes.settings import FlatSettings, IndexSettings

INDEX = "index.faiss"


def open_index(
    path: Path, vectors: NDArray[np.float32], settings: IndexSettings
) -> ExactIndex | ApproximateIndex:
    """Open the index over the bundle's vectors [N, D], float32 and perhaps mapped.

    An exact one searches those vectors where they lie, and needs no file; where there is one, as bundles of
    format 1 have, it must hold the same vectors. An approximate one can't be held against the vectors: it is
    of the kind, the size and the rows that the manifest says, and its checksum and the recorded queries
    vouch for the rest.

    Raises BundleError when `path` doesn't fit.
    """
    if not isinstance(settings, FlatSettings):
        return ApproximateIndex.load(path, vectors, settings)
    if path.exists():
        _check_flat(path, vectors)
    return ExactIndex(vectors)


def _check_flat(path: Path, vectors: NDArray[np.float32]) -> None:
    index = read_faiss(path, faiss.IndexFlatIP)
    found = (int(index.ntotal), int(index.d))
    if found != vectors.shape:
        raise BundleError(
            f"{path} has shape {found} where item_vectors.npy has {vectors.shape}; the files are of "
            "different models"
        )
    stored = faiss.rev_swig_ptr(index.get_xb(), found[0] * found[1]).reshape(found)
    if not np.array_equal(stored, vectors):
        raise BundleError(f"{path} holds other vectors than item_vectors.npy; they are of different models")
