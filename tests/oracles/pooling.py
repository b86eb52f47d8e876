"""YouTubeDNN's pooled user tower, one example at a time, with weights given as plain matrices."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def window_mean(vectors: Matrix, start: int, end: int) -> Matrix:
    """The mean of vectors start..end-1, added up one by one."""
    total = np.zeros(vectors.shape[1])
    for place in range(start, end):
        total += vectors[place]
    return total / (end - start)


def network(layers: Sequence[tuple[Matrix, Matrix]], inputs: Matrix) -> Matrix:
    """A ReLU network: layers of (weights [out, in], bias [out]), the last one linear."""
    for place, (weights, bias) in enumerate(layers):
        inputs = weights @ inputs + bias
        if place + 1 < len(layers):
            inputs = np.maximum(inputs, 0.0)
    return inputs
