"""The item vectors in the plane, for people who look at a catalog: PCA, or UMAP if it is installed."""

import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.format.item_map import ItemMap, quantised
from turret.tower.format.manifest import Scoring

# UMAP takes some minutes for so many items; beyond, PCA.
UMAP_ITEMS = 100_000
_BLOCK = 16_384
_log = logging.getLogger("turret.export")
_UMAP_FEWEST = 50  # its neighbourhoods are of 15 items


def project_items(vectors: NDArray[np.float32], scoring: Scoring) -> ItemMap:
    """Project item vectors [N, D] to the plane.

    With the package umap-learn and up to `UMAP_ITEMS` items by UMAP (McInnes et al., 2018), else by PCA. A
    bias in the last column is left out. Both are deterministic.
    """
    directions = vectors[:, :-1] if scoring.item_bias else vectors
    umap = _umap() if _UMAP_FEWEST <= len(vectors) <= UMAP_ITEMS else None
    if umap is None:
        return quantised("pca", principal_components(directions))
    metric = "cosine" if scoring.kind == "cosine" else "euclidean"
    reducer = umap.UMAP(metric=metric, random_state=0, n_jobs=1)
    return quantised("umap", np.asarray(reducer.fit_transform(directions), dtype=np.float64))


def _umap() -> Any:
    """The module of umap-learn; None if it is not installed, or not with all that it needs."""
    if find_spec("umap") is None:
        return None
    try:
        return import_module("umap")
    except ImportError as error:
        _log.warning("umap-learn can't be imported (%s); the map of the items is made by PCA", error)
        return None


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
