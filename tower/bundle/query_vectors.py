"""The real user vectors of a bundle, which measure the recall of its index."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.files import open_array, save_array
from turret.tower.bundle.golden import load_golden
from turret.tower.errors import BundleError

if TYPE_CHECKING:
    from turret.tower.bundle.bundle import Bundle

QUERY_VECTORS = "query_vectors.npy"


def query_vectors(bundle: "Bundle") -> NDArray[np.float32]:
    """The user vectors [Q, D] that came with the bundle, or those of its recorded queries.

    Raises BundleError when they can't be read, are not finite, or have another width than the items.
    """
    path = bundle.folder / QUERY_VECTORS
    if not path.exists():
        return recorded_vectors(bundle)
    try:
        vectors: NDArray[np.float32] = open_array(path, "float32")
    except DataError as error:
        raise BundleError(str(error)) from None
    check_queries(vectors, bundle.manifest.dimension)
    return vectors


def recorded_vectors(bundle: "Bundle") -> NDArray[np.float32]:
    """The user vectors [Q, D] of the bundle's recorded queries, encoded by its user tower."""
    queries = load_golden(bundle.folder / "golden.json").queries
    histories = [bundle.vocabulary.known_rows(query.history)[0] for query in queries]
    features, times = [query.features for query in queries], [query.times for query in queries]
    return bundle.encoder.encode(histories, features, times)


def save_queries(folder: Path, vectors: NDArray[np.float32], dimension: int) -> None:
    """Write user vectors [Q, D] into a bundle's folder. Raises BundleError as `check_queries`."""
    check_queries(vectors, dimension)
    save_array(folder / QUERY_VECTORS, np.ascontiguousarray(vectors, dtype=np.float32))


def check_queries(vectors: NDArray[np.float32], dimension: int) -> None:
    """Raise BundleError unless these are finite vectors [Q, D] of width `dimension`, at least one."""
    if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != dimension:
        raise BundleError(
            f"{QUERY_VECTORS} has shape {vectors.shape} where user vectors of width {dimension} are "
            "expected; export the bundle again"
        )
    if not np.isfinite(vectors).all():
        raise BundleError(f"{QUERY_VECTORS} is not finite; the training went wrong, train again")
