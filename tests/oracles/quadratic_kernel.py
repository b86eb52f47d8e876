"""Slow statements of the quadratic kernel: one inner product after the other, in float64."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def kernel(alpha: float, query: Sequence[float], vector: Sequence[float]) -> float:
    """alpha <h, w>^2 + 1."""
    product = sum(float(h) * float(w) for h, w in zip(query, vector, strict=True))
    return alpha * product**2 + 1.0


def shares(alpha: float, query: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """q [N]: each item's kernel over the sum of all."""
    kernels = np.array([kernel(alpha, query.tolist(), vector) for vector in vectors.tolist()])
    share: NDArray[np.float64] = kernels / kernels.sum()
    return share
