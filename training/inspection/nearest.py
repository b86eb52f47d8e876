"""The nearest items of popular and of rare items."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from turret.training.inspection.rankings import Rankings
from turret.training.randomness import stream

ITEMS, NEAREST = 6, 5


@dataclass(frozen=True)
class Neighbours:
    """An item row, its training events, and the rows of its nearest items with their similarity."""

    row: int
    events: int
    nearest: list[int]
    similarities: list[float]


def nearest_items(rankings: Rankings, seed: int) -> tuple[list[Neighbours], list[Neighbours]]:
    """The nearest items of the most popular items, and of some of the rarest tenth of those with an event.

    The similarity is the inner product of item vectors without biases, which is the cosine for towers that
    score by it, as in `GET /v1/items/{id}/similar`.
    """
    popularity = rankings.data.item_counts("train")
    used = np.argsort(-popularity, kind="stable")[: int((popularity > 0).sum())]
    popular = used[:ITEMS]
    rest = used[len(popular) :]
    rarest = rest[-max(ITEMS, len(used) // 10) :]
    drawn = stream(seed, "rare items", 0).permutation(rarest)[:ITEMS]
    vectors = _vectors(rankings)
    return _neighbours(popular, vectors, popularity), _neighbours(drawn, vectors, popularity)


def _vectors(rankings: Rankings) -> NDArray[np.float32]:
    """Item vectors [N, D] without the column of biases."""
    with torch.no_grad():
        vectors: NDArray[np.float32] = rankings.model.eval().catalog_vectors().float().cpu().numpy()
    return vectors[:, :-1] if rankings.model.config.scoring.item_bias else vectors


def _neighbours(
    rows: NDArray[np.int64], vectors: NDArray[np.float32], popularity: NDArray[np.int64]
) -> list[Neighbours]:
    found = []
    for row in rows.tolist():
        products = vectors @ vectors[row]
        products[row] = -np.inf
        order = np.argsort(-products, kind="stable")[: min(NEAREST, len(products) - 1)]
        found.append(Neighbours(row, int(popularity[row]), order.tolist(), products[order].tolist()))
    return found
