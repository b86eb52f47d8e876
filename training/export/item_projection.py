"""The item vectors in the plane of their principal components, for people who look at a catalog."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from turret.tower.format.item_map import ItemMap, quantised
from turret.tower.format.manifest import Scoring

_BLOCK = 16_384


def project_items(vectors: NDArray[np.float32], scoring: Scoring) -> ItemMap:
    """Project item vectors [N, D] to the plane; a bias in the last column is left out."""
    return quantised(principal_components(vectors[:, :-1] if scoring.item_bias else vectors))


def principal_components(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The coordinates [N, 2] along the two directions of the largest variance.

    By the eigenvectors of the covariance matrix [D, D]; each axis points so that its largest weight is
    positive. One dimension or one item leaves the missing coordinates 0. Sums are in float64, and so are
    `_BLOCK` vectors at a time.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((len(mean), len(mean)))
    for block in _centred(vectors, mean):
        covariance += block.T @ block
    _, axes = np.linalg.eigh(covariance)
    best = axes[:, ::-1][:, :2]
    signs = np.sign(best[np.abs(best).argmax(axis=0), np.arange(best.shape[1])])
    directions = best * np.where(signs == 0, 1.0, signs)
    points = np.concatenate([block @ directions for block in _centred(vectors, mean)])
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _centred(vectors: NDArray[np.floating], mean: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    for first in range(0, len(vectors), _BLOCK):
        yield vectors[first : first + _BLOCK] - mean
