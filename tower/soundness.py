"""Whether the parts of a bundle fit each other and hold numbers that can be served."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.errors import BundleError
from tower.manifest import Manifest

# Float32 rounding of a norm over some thousand columns; a vector that was never normalised is further off.
_UNIT_TOLERANCE = 1e-3


def check_parts(
    manifest: Manifest,
    vectors: NDArray[np.float32],
    popularity: NDArray[np.int64],
    vocabulary_length: int,
) -> None:
    """Raise BundleError naming the first part whose shape or content doesn't fit the rest.

    The index is held against the vectors when it is opened (`tower.indexes.opening`).
    """
    _check_shapes(manifest, vectors, popularity, vocabulary_length)
    norms = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(norms).all():
        row = int(np.argmin(np.isfinite(norms)))
        raise BundleError(
            f"item_vectors.npy is not finite in row {row}; the training went wrong, train again"
        )
    if not norms.any():
        raise BundleError("item_vectors.npy holds nothing but zeros; the training went wrong, train again")
    if manifest.scoring.kind == "cosine":
        _check_lengths(np.linalg.norm(vectors[:, :-1], axis=1) if manifest.scoring.item_bias else norms)
    if (popularity < 0).any():
        raise BundleError("popularity.npy holds a negative count; export the bundle again")


def _check_lengths(lengths: NDArray[np.floating[Any]]) -> None:
    if (np.abs(lengths - 1) > _UNIT_TOLERANCE).any():
        row = int(np.argmax(np.abs(lengths - 1)))
        raise BundleError(
            f"the scoring is cosine, but the item vector in row {row} has length {lengths[row]:.4g} instead "
            "of 1"
        )


def _check_shapes(
    manifest: Manifest,
    vectors: NDArray[np.float32],
    popularity: NDArray[np.int64],
    vocabulary_length: int,
) -> None:
    count, dimension = manifest.item_count, manifest.dimension
    shapes = {
        "item_vectors.npy": (vectors.shape, (count, dimension)),
        "popularity.npy": (popularity.shape, (count,)),
        "vocabulary.json": ((vocabulary_length,), (count,)),
    }
    for name, (found, expected) in shapes.items():
        if found != expected:
            raise BundleError(
                f"{name} has shape {found} where the manifest says {expected}; the files are of different "
                f"models"
            )
