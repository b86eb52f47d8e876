"""Item co-occurrence and item-kNN: weights between items, summed over the user's history.

The weight of an item for itself counts the users who have used it several times.
"""

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.fitted import Baseline, Fitted, by_history
from turret.training.baselines.interactions import Interactions, Offsets, Rows
from turret.training.baselines.neighbours import Neighbours, affordable_neighbours, nearest, summed_scores

# Usual values on implicit data (Dacrema et al. 2019, "Are we really making much progress?").
KNN_NEIGHBOURS, KNN_SHRINKAGE = 100, 10.0


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


CO_OCCURRENCE = Baseline("co_occurrence", "item co-occurrence", fit_co_occurrence)
ITEM_KNN = Baseline("item_knn", "item-kNN", fit_item_knn)
