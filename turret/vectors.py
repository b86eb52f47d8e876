"""Vectors as callers of the Python API have them: lists, arrays of any type and layout."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turret.data.errors import TurretError


def as_vectors(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """Return vectors as contiguous float32 [R, D]; one vector [D] is [1, D].

    Raises TurretError for other shapes, values that are no numbers, and numbers that are not finite in
    float32.
    """
    try:
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise TurretError(f"{name} has to hold numbers, in vectors of one length: [rows, D]") from None
    vectors = vectors.reshape(1, -1) if vectors.ndim == 1 else vectors
    if vectors.ndim != 2:
        raise TurretError(f"{name} has the shape {vectors.shape}; give [rows, D]")
    if not np.isfinite(vectors).all():
        raise TurretError(f"{name} needs vectors that are finite in float32")
    return vectors
