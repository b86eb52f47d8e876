"""The items that were popular just before each request, by the rule of `POST /v1/popular`."""

from functools import partial
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.interactions import Baseline
from turret.training.batches.event_times import request_moments
from turret.training.evaluation.ranking import ScoresOf, popularity_order

HOUR = 3_600_000  # milliseconds, as of `PreparedData.times`
WINDOWS = MappingProxyType({"hour": HOUR, "day": 24 * HOUR, "week": 7 * 24 * HOUR})


def fit_popular_before(data: PreparedData, until: HistoryEnd, window: int) -> ScoresOf:
    """Rank items by their number of targets in the `window` before the request, then by popularity.

    These events are of all parts: a service has counted those of other users up to this moment. A request is
    at the time of the user's next event, whose own time is not counted.
    """
    behind, ends = popularity_order(data.item_counts("train")), np.asarray(data.history_ends(until))
    of_requests = request_moments(data, np.arange(len(ends)), ends)
    targets = data.only_targets(
        np.flatnonzero(np.asarray(data.times) >= of_requests.min(initial=np.inf) - window)
    )
    targets = targets[np.argsort(data.times[targets], kind="stable")]
    times, items = np.asarray(data.times[targets]), np.asarray(data.event_items[targets])

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        moments = of_requests[users]
        firsts, lasts = (np.searchsorted(times, moments - before) for before in (window, 0))
        counts = np.zeros(len(data.item_ids), dtype=np.float32)
        scores = np.empty((len(users), len(counts)), dtype=np.float32)
        first = last = 0
        for user in np.argsort(moments):  # the window moves on: each event is added and taken away once
            np.add.at(counts, items[last : lasts[user]], 1.0)
            np.subtract.at(counts, items[first : firsts[user]], 1.0)
            first, last = firsts[user], lasts[user]
            scores[user] = counts
        result = torch.from_numpy(scores)
        return torch.where(result == 0, behind, result)

    return scores_of


POPULAR_BEFORE = tuple(
    Baseline(
        f"popular_{name}",
        f"popular in the last {name}",
        partial(fit_popular_before, window=window),
        lambda data: None if data.manifest.time.kind == "timestamp" else "its events have no timestamps",
        is_live=True,
    )
    for name, window in WINDOWS.items()
)
