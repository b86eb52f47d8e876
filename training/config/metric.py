"""The metrics of a ranking: training, evaluation, activation and help texts take them from one table."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

AUC = "auc"
Hits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Metric = Callable[[Hits, Counts, int], NDArray[np.float64]]


def _discounts(k: int) -> NDArray[np.float64]:
    discounts: NDArray[np.float64] = 1.0 / np.log2(np.arange(2, k + 2))
    return discounts


def _ndcg(hits: Hits, relevant: Counts, k: int) -> NDArray[np.float64]:
    gains = (hits * _discounts(hits.shape[1])).sum(axis=1)
    values: NDArray[np.float64] = gains / np.cumsum(_discounts(k))[np.minimum(relevant, k) - 1]
    return values


def _mrr(hits: Hits, relevant: Counts, k: int) -> NDArray[np.float64]:
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


def _map(hits: Hits, relevant: Counts, k: int) -> NDArray[np.float64]:
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    values: NDArray[np.float64] = (hits * precisions).sum(axis=1) / np.minimum(relevant, k)
    return values


METRICS: Mapping[str, Metric] = {
    "hr": lambda hits, relevant, k: np.asarray(hits.any(axis=1), dtype=np.float64),
    "recall": lambda hits, relevant, k: hits.sum(axis=1) / relevant,
    "ndcg": _ndcg,
    "mrr": _mrr,
    "map": _map,
}
"""The functions of the metrics' values [U] at k, by name; a cut-off follows the name, as in ndcg@10.

With r = `relevant` [U], the number of relevant items of a user (at least 1), and h the `hits` [U, up to k]
among the first k ranks, from 1:
hr@k = 1 if h > 0; recall@k = h / r; mrr@k = 1 / (rank of the first hit), else 0;
map@k = sum of (hits up to the rank) / rank over hits, divided by min(r, k);
ndcg@k = sum of 1 / log2(rank + 1) over hits, divided by the sum for min(r, k) hits at the top
(Jarvelin & Kekalainen 2002).
"""
RANKING_METRIC = rf"(?:{'|'.join(METRICS)})@([1-9][0-9]{{0,3}})"
