"""The items that the user has used, the last or the most used one first; popular ones follow."""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.fitted import Baseline, Fitted, popularity_behind
from turret.training.baselines.interactions import used_pairs


def fit_own_use(data: PreparedData, until: HistoryEnd, by_count: bool) -> Fitted:
    """Used items by their last use, or `by_count` by their number of uses and then by the last one."""
    behind = popularity_behind(data.item_counts("train"))

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        pairs = used_pairs(data, users, until)
        own, after, counts = np.unique(pairs[::-1], return_index=True, return_counts=True)
        order = np.lexsort((-after, counts)) if by_count else np.argsort(-after)
        places = np.empty(len(own), dtype=np.float32)
        places[order] = np.arange(1, len(own) + 1)
        scores = behind.repeat(len(users), 1)
        scores[own // len(behind), own % len(behind)] = torch.from_numpy(places)
        return scores

    return Fitted(scores_of)


LAST_USED = Baseline("last_used", "last used items", partial(fit_own_use, by_count=False), of_own_use=True)
MOST_USED = Baseline("most_used", "most used items", partial(fit_own_use, by_count=True), of_own_use=True)
