"""Models of the pairs of users and items: co-occurrence, item-kNN, lift, EASE, and matrix factorisation.

The scores of all but the last are weights summed over the user's history. The weight of an item for itself
counts the users who have used it several times.
"""

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from turret.data.extras import install_command
from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.interactions import (
    Baseline,
    Interactions,
    Offsets,
    Rows,
    by_history,
    sparse_rows,
)
from turret.training.evaluation.ranking import ScoresOf
from turret.training.evaluation.top_rows import top_rows

Scores = NDArray[np.float32]

# All items together have at most so many neighbours, 8 bytes each: 512 MB.
MOST_NEIGHBOURS = 2**26
# So many weights of pairs of items are held at once, 4 bytes each.
_HELD = 2**22
# These values are usual on implicit data (Dacrema et al. 2019, "Are we really making much progress?").
KNN_NEIGHBOURS, KNN_SHRINKAGE = 100, 10.0
# A pair of items that fewer baskets have may be chance, and its lift is then the largest of all.
LIFT_SUPPORT = 20
# A matrix of EASE takes 400 MB with so many items, and two exist at once.
MOST_ITEMS = 10_000
FACTORS, REGULARIZATION, CONFIDENCE, ITERATIONS = 64, 0.1, 10.0, 15


def pair_counts(used: Any) -> Iterator[tuple[slice, Any]]:
    """Yield c_ij, the number of users of both items of the sparse `used` [U, N], in sparse blocks [b, N].

    The diagonal has the number of users of each item.
    """
    item_count, by_item = used.shape[1], used.T.tocsr()
    size = max(1, _HELD // item_count)
    for start in range(0, item_count, size):
        rows = slice(start, min(start + size, item_count))
        yield rows, by_item[rows] @ used


def nearest(log: Interactions, most: int, norms: Scores, shrinkage: float, support: int = 1) -> Any:
    """The weights of the `most` items j of each item i with the largest c_ij / (norm_i norm_j + shrinkage).

    Among equal weights the lower row comes first, and an item is no neighbour of itself. With norms of 1 and
    no shrinkage the weight is c_ij; with norms that are roots of c_ii it is the shrunk cosine.

    Args:
        log: the pairs of users and items.
        most: K, the number of neighbours of each item.
        norms: float32 [N], positive.
        shrinkage: lowers the weight of items with few users.
        support: the least c_ij of neighbours.

    Returns:
        float32 [N, N], sparse by rows.
    """
    from scipy.sparse import csr_matrix, vstack

    parts = []
    for rows, counts in pair_counts(log.used):
        places = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        weights = np.full(counts.shape, -np.inf, dtype=np.float32)
        near = norms[rows][places] * norms[counts.indices] + np.float32(shrinkage)
        weights[places, counts.indices] = np.where(counts.data < support, -np.inf, counts.data / near)
        weights[np.arange(len(weights)), np.arange(rows.start, rows.stop)] = -np.inf
        best = top_rows(torch.from_numpy(weights), most).numpy()
        exist = best >= 0
        ends = np.concatenate([[0], np.cumsum(exist.sum(axis=1))])
        kept = np.take_along_axis(weights, best, axis=1)[exist]
        parts.append(csr_matrix((kept, best[exist], ends), shape=counts.shape))
    return vstack(parts, format="csr")


def fit_co_occurrence(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Sum weights c_ij, the number of users of both items, over as many neighbours as memory allows."""
    log = Interactions.training(data)
    norms, count = np.ones(len(data.item_ids), dtype=np.float32), _neighbours(data, len(data.item_ids))
    return _scores_of(nearest(log, count, norms, 0.0), log.item_repeaters, data, until)


def fit_lift(data: PreparedData, until: HistoryEnd, support: int = LIFT_SUPPORT) -> ScoresOf:
    """Sum lifts U c_ij / (c_i c_j) of the pairs that at least `support` of the U users have.

    Source: Brin et al. 1997, "Dynamic itemset counting and implication rules for market basket data", where
    it is called interest.
    """
    log = Interactions.training(data)
    norms = np.maximum(log.item_users, 1).astype(np.float32) / np.float32(np.sqrt(log.used.shape[0]))
    neighbours = nearest(log, _neighbours(data, len(data.item_ids)), norms, 0.0, support)
    return _scores_of(neighbours, log.item_repeaters, data, until)


def fit_item_knn(
    data: PreparedData,
    until: HistoryEnd,
    most: int = KNN_NEIGHBOURS,
    shrinkage: float = KNN_SHRINKAGE,
) -> ScoresOf:
    """Sum weights c_ij / (sqrt(c_i c_j) + shrinkage), the shrunk cosines, over the nearest `most` neighbours.

    Source: Sarwar et al. 2001, with the shrinkage of Bell & Koren 2007.
    """
    log = Interactions.training(data)
    norms = np.sqrt(np.maximum(log.item_users, 1)).astype(np.float32)
    self_weights = log.item_repeaters / (np.maximum(log.item_users, 1) + shrinkage)
    neighbours = nearest(log, _neighbours(data, most), norms, shrinkage)
    return _scores_of(neighbours, self_weights, data, until)


def _neighbours(data: PreparedData, wanted: int) -> int:
    """The number of neighbours of each item, as far as memory allows."""
    count = len(data.item_ids)
    return max(1, min(wanted, count, MOST_NEIGHBOURS // count))


def _neighbour_limits(data: PreparedData, wanted: int | None = None) -> str:
    wanted = min(wanted or len(data.item_ids), len(data.item_ids))
    most = _neighbours(data, wanted)
    return "" if most >= wanted else f"the nearest {most:,} neighbours of each item"


def _scores_of(
    neighbours: Any,
    self_weights: NDArray[np.int64] | NDArray[np.float64],
    data: PreparedData,
    until: HistoryEnd,
) -> ScoresOf:
    """Scores by the weights of neighbours, sparse [N, N], and of each item for itself, `self_weights` [N]."""

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        result: Scores = (sparse_rows(offsets, items, len(self_weights)) @ neighbours).toarray()
        result[np.repeat(np.arange(len(result)), np.diff(offsets)), items] += self_weights[items]
        return result

    return by_history(scores, data, until)


def popular_counts(log: Interactions) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows of the most popular `MOST_ITEMS` items, ascending, int64 [M], and X'X of them [M, M]."""
    kept = np.sort(np.argsort(-log.item_users, kind="stable")[:MOST_ITEMS])
    counts = np.empty((len(kept), len(kept)), dtype=np.float32)
    for rows, block in pair_counts(log.used[:, kept]):
        counts[rows] = block.toarray()
    return kept, counts


def ease_weights(counts: NDArray[np.float32], regularization: float) -> Tensor:
    """The weights B = I - P diag(1 / diag P), P = (X'X + regularization I)^-1, with zeros on the diagonal.

    Source: Steck 2019, "Embarrassingly shallow autoencoders for sparse data", eq. 8. `counts` is changed.

    Args:
        counts: X'X, float32 [M, M], for the binary matrix X [U, M] of users and items.
        regularization: the weight of the squared Frobenius norm of B.

    Returns:
        float32 [M, M]; row i has the weights of item i for all others.
    """
    gram = torch.from_numpy(counts)
    gram.diagonal().add_(regularization)
    torch.linalg.cholesky(gram, out=gram)
    # The inverse is symmetric and stored by columns; sums over histories read rows.
    precision = torch.cholesky_inverse(gram).mT.contiguous()
    precision.div_(-precision.diagonal().clone())
    precision.fill_diagonal_(0.0)
    return precision


def fit_ease(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """EASE on the most popular items of a large catalog; the others follow by popularity.

    The regularization is the mean number of users of an item, the mean of diag X'X: about the 500 that
    Steck 2019 uses on MovieLens 20M. The diagonal, which Steck leaves empty, predicts another use of the item
    from the first, by a ridge regression too; the diagonal matters where used items are ranked.
    """
    log = Interactions.training(data)
    kept, counts = popular_counts(log)
    regularization = max(1.0, float(log.item_users[kept].mean()))
    new_rows = np.full(len(data.item_ids), -1, dtype=np.int32)
    new_rows[kept] = np.arange(len(kept))
    weights = ease_weights(counts, regularization)
    self_weights = log.item_repeaters[kept] / (log.item_users[kept] + regularization)
    weights.diagonal().copy_(torch.from_numpy(self_weights))

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        rows = new_rows[items]
        before = np.concatenate([[0], np.cumsum(rows >= 0)])[offsets]
        known, starts = torch.from_numpy(rows[rows >= 0]), torch.from_numpy(before[:-1])
        result = torch.zeros(len(starts), len(data.item_ids))
        summed = embedding_bag(known, weights, starts, mode="sum")
        # Scores are raised above zero, which by_history keeps for items without a score.
        lowest = summed.min(dim=1, keepdim=True).values
        raised = (summed - lowest) + torch.finfo(torch.float32).tiny
        has_items = torch.from_numpy(np.diff(before) > 0)
        result[:, torch.from_numpy(kept)] = torch.where(has_items[:, None], raised, 0.0)
        return result.numpy()

    return by_history(scores, data, until)


def ease_limits(data: PreparedData) -> str:
    """The clause about the items that EASE is fitted on; empty for all items."""
    return f"the {MOST_ITEMS:,} most popular items" * (len(data.item_ids) > MOST_ITEMS)


def fit_als(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Fit factors by alternating least squares; vectors of users are solved from their histories.

    The weight of a used pair of user and item is 10, the weight of all other pairs 1. There are 64 factors
    (256 bytes per user and item) and 15 iterations.
    """
    from implicit.cpu.als import AlternatingLeastSquares

    with warnings.catch_warnings():
        # implicit advises to set an environment variable for the threads of the linear algebra library.
        warnings.simplefilter("ignore")
        model = AlternatingLeastSquares(
            factors=FACTORS,
            regularization=REGULARIZATION,
            alpha=CONFIDENCE,
            iterations=ITERATIONS,
            num_threads=torch.get_num_threads(),
            random_state=0,
        )
        model.fit(Interactions.training(data).used, show_progress=False)

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        histories = sparse_rows(offsets, items, len(data.item_ids))
        vectors = model.recalculate_user(np.arange(len(offsets) - 1), histories)
        result: NDArray[np.float32] = np.atleast_2d(vectors) @ model.item_factors.T
        # Scores of known users are raised above zero, which by_history keeps for items without a score.
        result += np.float32(1e-6) - result.min(axis=1, keepdims=True)
        result[np.diff(offsets) == 0] = 0.0
        return result

    return by_history(scores, data, until)


def _without_implicit(data: PreparedData) -> str | None:
    if find_spec("implicit") is not None:
        return None
    return f"implicit is not installed; run: {install_command('baselines')}"


PAIR_MODELS = (
    Baseline("co_occurrence", "item co-occurrence", fit_co_occurrence, limits=_neighbour_limits),
    Baseline(
        "item_knn", "item-kNN", fit_item_knn, limits=lambda data: _neighbour_limits(data, KNN_NEIGHBOURS)
    ),
    Baseline("lift", "lift", fit_lift, limits=_neighbour_limits, of_baskets=True),
    Baseline(
        "ease",
        "EASE",
        fit_ease,
        limits=ease_limits,
    ),
    Baseline("als", "matrix factorisation", fit_als, _without_implicit),
)
