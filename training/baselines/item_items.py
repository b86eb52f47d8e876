"""Linear models from items to items: co-occurrence, item-kNN and EASE.

Their scores are weights summed over the user's history. The weight of an item for itself counts the users who
have used it several times.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from turret.data.prepared import HistoryEnd, PreparedData
from turret.tower.kernels.compiled import compiled, in_parts
from turret.training.baselines.interactions import Baseline, Fitted, Interactions, Offsets, Rows, by_history
from turret.training.evaluation.top_rows import sift_down

Scores = NDArray[np.float32]

# Neighbours of all items together, 8 bytes each: 512 MB.
MOST_NEIGHBOURS = 2**26
# Usual values on implicit data (Dacrema et al. 2019, "Are we really making much progress?").
KNN_NEIGHBOURS, KNN_SHRINKAGE = 100, 10.0
# Matrices of EASE of 400 MB, of which two exist at once.
MOST_ITEMS = 10_000


@dataclass(frozen=True)
class Neighbours:
    """K neighbours of each of N items: `rows` int32 [N, K], -1 for none, and `weights` float32 [N, K]."""

    rows: Rows
    weights: Scores


def affordable_neighbours(item_count: int) -> int:
    """The number of neighbours of each item that fit into the memory of `MOST_NEIGHBOURS`."""
    return max(1, min(item_count, MOST_NEIGHBOURS // item_count))


@compiled
def _nearest(
    user_offsets: Offsets,
    items: Rows,
    item_offsets: Offsets,
    users: Rows,
    norms: Scores,
    shrinkage: np.float32,
    rows: Rows,
    weights: Scores,
    start: int,
    stop: int,
) -> None:
    most = rows.shape[1]
    counts, touched = np.zeros(len(norms), np.float32), np.empty(len(norms), np.int64)
    best, best_rows = np.empty(most, np.float32), np.empty(most, np.int64)
    for item in range(start, stop):
        seen = 0
        for place in range(item_offsets[item], item_offsets[item + 1]):
            user = users[place]
            for position in range(user_offsets[user], user_offsets[user + 1]):
                other = items[position]
                if counts[other] == 0.0:
                    touched[seen] = other
                    seen += 1
                counts[other] += 1.0
        best[:], best_rows[:] = -np.inf, -1
        for index in range(seen):
            other = touched[index]
            weight = counts[other] / (norms[item] * norms[other] + shrinkage)
            counts[other] = 0.0
            if other != item and (weight > best[0] or (weight == best[0] and other < best_rows[0])):
                best[0], best_rows[0] = weight, other
                sift_down(best, best_rows, most)
        for index in range(most):
            rows[item, index] = best_rows[index]
            weights[item, index] = best[index] if best_rows[index] >= 0 else 0.0


def nearest(log: Interactions, most: int, norms: Scores, shrinkage: float) -> Neighbours:
    """The `most` items j of each item i with the largest c_ij / (norm_i norm_j + shrinkage), ties by row.

    c_ij is the number of users of both, and an item is no neighbour of itself. With norms of 1 and no
    shrinkage the weight is c_ij; with norms that are roots of c_ii it is the shrunk cosine.

    Args:
        log: the pairs of users and items.
        most: K, the number of neighbours of each item.
        norms: float32 [N], positive.
        shrinkage: lowers the weight of items with few users.
    """
    shape = (log.item_count, min(most, log.item_count))
    found = Neighbours(np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.float32))
    work = partial(
        _nearest,
        *(log.user_offsets, log.items, log.item_offsets, log.users),
        *(norms.astype(np.float32), np.float32(shrinkage), found.rows, found.weights),
    )
    in_parts(log.item_count, work, least=16)
    return found


@compiled
def _add(
    offsets: Offsets, items: Rows, rows: Rows, weights: Scores, scores: Scores, start: int, stop: int
) -> None:
    for user in range(start, stop):
        for position in range(offsets[user], offsets[user + 1]):
            item = items[position]
            for index in range(rows.shape[1]):
                if rows[item, index] >= 0:
                    scores[user, rows[item, index]] += weights[item, index]


def summed_scores(neighbours: Neighbours, offsets: Offsets, items: Rows) -> Scores:
    """The sum of the weights of each item as a neighbour of a user's items: float32 [U, N].

    Args:
        neighbours: of all N items.
        offsets: int64 [U + 1], the bounds of the users' items.
        items: int32 [P], the users' distinct items.
    """
    scores = np.zeros((len(offsets) - 1, len(neighbours.rows)), dtype=np.float32)
    work = partial(_add, offsets, items, neighbours.rows, neighbours.weights, scores)
    in_parts(len(scores), work, least=4)
    return scores


def fit_co_occurrence(data: PreparedData, until: HistoryEnd) -> Fitted:
    """Weight c_ij, the number of users of both items, for as many neighbours as memory allows."""
    log = Interactions.training(data)
    most = affordable_neighbours(log.item_count)
    found = nearest(log, most, np.ones(log.item_count, dtype=np.float32), 0.0)
    return _fitted(found, log.item_repeaters, data, until, log.item_count)


def fit_item_knn(data: PreparedData, until: HistoryEnd) -> Fitted:
    """Weight c_ij / (sqrt(c_i c_j) + shrinkage), the shrunk cosine, for the nearest 100 neighbours.

    Source: Sarwar et al. 2001, with the shrinkage of Bell & Koren 2007.
    """
    log = Interactions.training(data)
    norms = np.sqrt(np.maximum(log.item_users, 1)).astype(np.float32)
    most = min(KNN_NEIGHBOURS, affordable_neighbours(log.item_count))
    found = nearest(log, most, norms, KNN_SHRINKAGE)
    own = log.item_repeaters / (log.item_users + KNN_SHRINKAGE)
    return _fitted(found, own, data, until, KNN_NEIGHBOURS)


def _fitted(
    neighbours: Neighbours,
    own: NDArray[np.int64] | NDArray[np.float64],
    data: PreparedData,
    until: HistoryEnd,
    wanted: int,
) -> Fitted:
    """Scores by `neighbours` and by `own` [N], the weight of each item for itself."""

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        result = summed_scores(neighbours, offsets, items)
        result[np.repeat(np.arange(len(result)), np.diff(offsets)), items] += own[items]
        return result

    count, most = neighbours.rows.shape
    limits = "" if most >= min(wanted, count) else f"the nearest {most:,} neighbours of each item"
    return Fitted(by_history(scores, data, until), limits)


@compiled
def _count(
    user_offsets: Offsets,
    items: Rows,
    item_offsets: Offsets,
    users: Rows,
    counted: Rows,
    columns: Rows,
    counts: Scores,
    start: int,
    stop: int,
) -> None:
    for line in range(start, stop):
        for place in range(item_offsets[counted[line]], item_offsets[counted[line] + 1]):
            user = users[place]
            for position in range(user_offsets[user], user_offsets[user + 1]):
                column = columns[items[position]]
                if column >= 0:
                    counts[line, column] += 1.0


def pair_counts(log: Interactions, columns: Rows) -> Scores:
    """The number of users of both items, float32 [M, M]; the diagonal has the users of each item.

    4 M^2 bytes. `columns` int32 [N] is the place of each item among the M that are counted, in ascending
    order, or -1.
    """
    counted = np.flatnonzero(columns >= 0).astype(np.int32)
    counts = np.zeros((len(counted), len(counted)), dtype=np.float32)
    pairs = (log.user_offsets, log.items, log.item_offsets, log.users)
    in_parts(len(counted), partial(_count, *pairs, counted, columns, counts), least=16)
    return counts


def ease_weights(counts: NDArray[np.float32], regularisation: float) -> Tensor:
    """B = I - P diag(1 / diag P) with P = (X'X + regularisation I)^-1, and zeros on the diagonal.

    Source: Steck 2019, "Embarrassingly shallow autoencoders for sparse data", eq. 8. `counts` is changed.

    Args:
        counts: X'X, float32 [M, M], for the binary matrix X [U, M] of users and items.
        regularisation: the weight of the squared Frobenius norm of B.

    Returns:
        float32 [M, M]; row i has the weights of item i for all others.
    """
    gram = torch.from_numpy(counts)
    gram.diagonal().add_(regularisation)
    torch.linalg.cholesky(gram, out=gram)
    # The inverse is symmetric and comes by columns; sums over histories read rows.
    precision = torch.cholesky_inverse(gram).mT.contiguous()
    precision.div_(-precision.diagonal().clone())
    precision.fill_diagonal_(0.0)
    return precision


def fit_ease(data: PreparedData, until: HistoryEnd) -> Fitted:
    """EASE on the most popular items of a large catalog; the others follow by popularity.

    The regularisation is the mean number of users of an item, the mean of diag X'X: about the 500 that
    Steck 2019 uses on MovieLens 20M. The diagonal, which he leaves empty, predicts another use of the item
    from the first, by a ridge regression too; it matters where used items are ranked.
    """
    log = Interactions.training(data)
    kept = np.sort(np.argsort(-log.item_users, kind="stable")[:MOST_ITEMS])
    regularisation = max(1.0, float(log.item_users[kept].mean()))
    new_rows = np.full(log.item_count, -1, dtype=np.int32)
    new_rows[kept] = np.arange(len(kept))
    weights = ease_weights(pair_counts(log, new_rows), regularisation)
    own = log.item_repeaters[kept] / (log.item_users[kept] + regularisation)
    weights.diagonal().copy_(torch.from_numpy(own))

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        rows = new_rows[items]
        before = np.concatenate([[0], np.cumsum(rows >= 0)])[offsets]
        known, starts = torch.from_numpy(rows[rows >= 0]), torch.from_numpy(before[:-1])
        result = torch.zeros(len(starts), log.item_count)
        summed = embedding_bag(known, weights, starts, mode="sum")
        # Raised above zero, which by_history keeps for items without a score.
        lowest = summed.min(dim=1, keepdim=True).values
        raised = (summed - lowest) + torch.finfo(torch.float32).tiny
        has_items = torch.from_numpy(np.diff(before) > 0)
        result[:, torch.from_numpy(kept)] = torch.where(has_items[:, None], raised, 0.0)
        return result.numpy()

    limits = f"the {MOST_ITEMS:,} most popular items" if len(kept) < log.item_count else ""
    return Fitted(by_history(scores, data, until), limits)


CO_OCCURRENCE = Baseline("co_occurrence", "item co-occurrence", fit_co_occurrence)
ITEM_KNN = Baseline("item_knn", "item-kNN", fit_item_knn)
EASE = Baseline("ease", "EASE", fit_ease)
