"""Recall of an index, measured where it will be served."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tower.index import Index
from tower.manifest import MeasuredRecall

KS = (10, 100, 1000)
SELECTIVITIES = (1.0, 0.1, 0.01)
# Two float32 sums of the same products; a neighbour that is truly further away is further by more.
_ROUNDING = 1e-5


def measure_recall(
    index: Index,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    ks: Sequence[int] = KS,
    selectivities: Sequence[float] = SELECTIVITIES,
    absolute: bool = False,
) -> tuple[MeasuredRecall, ...]:
    """Compare the index with brute force for queries [B, D] over vectors [N, D].

    For each selectivity that share of the rows, drawn with a fixed seed, is allowed. A k beyond the number of
    allowed rows is left out. Recall: share of the found items whose true score reaches the k-th best true
    one. `absolute`: scores have no sign, and the index searches accordingly.
    """
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    scores = np.abs(scores) if absolute else scores
    generator = np.random.default_rng(0)
    measured = []
    for selectivity in selectivities:
        allowed = np.zeros(len(vectors), dtype=np.bool_)
        allowed[generator.permutation(len(vectors))[: round(selectivity * len(vectors))]] = True
        for k in ks:
            if k <= int(allowed.sum()):
                recall = _recall(index, queries, np.where(allowed, scores, -np.inf), k, allowed)
                measured.append(MeasuredRecall(k=k, selectivity=selectivity, recall=recall))
    return tuple(measured)


def _recall(
    index: Index,
    queries: NDArray[np.float32],
    scores: NDArray[np.float64],
    k: int,
    allowed: NDArray[np.bool_],
) -> float:
    rows, _ = index.search(queries, k, allowed)
    worst = np.partition(scores, -k, axis=1)[:, -k, None]
    slack = _ROUNDING * np.abs(np.where(np.isfinite(scores), scores, 0.0)).max(axis=1, keepdims=True)
    return float(np.mean(np.take_along_axis(scores, rows, axis=1) >= worst - slack))
