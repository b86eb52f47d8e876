"""Baselines that rank the items that a user has used: the rules that a shop would write in some lines.

An event of a target kind takes its item; in data without kinds, every event does. Items that the user has not
used follow by their popularity.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.kinds import read_kinds, target_codes
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.ranges import lower_medians
from turret.tower.repeats import Events
from turret.training.baselines.interactions import MOST_EVENTS, Baseline
from turret.training.baselines.pair_models import ease_limits, fit_ease
from turret.training.evaluation.ranking import ScoresOf, popularity_order
from turret.training.evaluation.seen import uses_of

FIVE = 5


class Takes(NamedTuple):
    """The M distinct items of U histories, sorted by user and row.

    Attributes:
        owners: int64 [M], the index in [U]; rows: int64 [M], their items.
        used: int64 [M], the place of the last use; taken: int64 [M], the place of the last take, -1 for none.
        counts: int64 [M], the number of takes; uses: int64 [M], the number of uses.
        due: float64 [M], minus the distance from being due, between the logarithms of the time since the last
            take and of the median time between the user's takes; minus infinity for fewer than two takes.
    """

    owners: NDArray[np.int64]
    rows: NDArray[np.int64]
    used: NDArray[np.int64]
    taken: NDArray[np.int64]
    counts: NDArray[np.int64]
    uses: NDArray[np.int64]
    due: NDArray[np.float64]


Obstacle = Callable[[PreparedData], str | None]
Order = Callable[[Takes], NDArray[np.int64]]
"""Sorts the M items of `Takes`: the indices [M], worst item of each history first; histories may be mixed."""


def takes_of(events: Events, targets: list[int]) -> Takes:
    """The items of these histories; without `targets`, the codes of target kinds, all events are takes."""
    owners = np.repeat(np.arange(len(events.lengths)), events.lengths)
    pairs = np.column_stack([owners, events.rows])
    distinct, item, uses = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    places, item, size = np.arange(len(owners)), item.ravel(), len(distinct)
    are_takes = np.ones(len(owners), dtype=np.bool_)
    if events.kinds is not None and targets:
        are_takes = np.isin(events.kinds, targets)
    used, taken = np.full((2, size), -1)
    np.maximum.at(used, item, places)
    np.maximum.at(taken, item[are_takes], places[are_takes])
    due = np.full(size, -np.inf)
    if events.times is not None and events.request_times is not None:
        order = places[are_takes][np.argsort(item[are_takes], kind="stable")]
        are_again = np.diff(item[order]) == 0
        between, of_item = np.diff(events.times[order])[are_again], item[order][1:][are_again]
        median, gaps = lower_medians(between, of_item, size)
        has_gap = gaps > 0
        age = events.request_times[distinct[has_gap, 0]] - events.times[taken[has_gap]]
        due[has_gap] = -np.abs(np.log(np.maximum(age, 1.0) / np.maximum(median[has_gap], 1.0)))
    counts = np.bincount(item[are_takes], minlength=size)
    return Takes(distinct[:, 0], distinct[:, 1], used, taken, counts, uses, due)


def fit_order(data: PreparedData, until: HistoryEnd, order: Order) -> ScoresOf:
    """Rank used items by a rule of their takes, then all others by their popularity."""
    behind, targets = popularity_order(data.item_counts("train")), target_codes(data.manifest.kinds)

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        takes = takes_of(uses_of(data, users, until, MOST_EVENTS), targets)
        places = np.empty(len(takes.rows), dtype=np.float32)
        places[order(takes)] = np.arange(1, len(takes.rows) + 1)
        scores = behind.repeat(len(users), 1)
        scores[takes.owners, takes.rows] = torch.from_numpy(places)
        return scores

    return scores_of


def fit_five_then_ease(data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Rank the five items that were taken last first, then the others by EASE."""
    ease, targets = fit_ease(data, until), target_codes(data.manifest.kinds)

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        takes, scores = takes_of(uses_of(data, users, until, MOST_EVENTS), targets), ease(users)
        newest = np.lexsort((-takes.taken, takes.owners))
        owners = takes.owners[newest]
        rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
        newest = newest[(rank < FIVE) & (takes.taken[newest] >= 0)]
        rank = np.arange(len(newest)) - np.searchsorted(takes.owners[newest], takes.owners[newest])
        top = scores.max(dim=1).values.numpy()[takes.owners[newest]]
        scores[takes.owners[newest], takes.rows[newest]] = torch.from_numpy(
            (top + np.maximum(np.abs(top), 1.0) * (FIVE - rank)).astype(np.float32)
        )
        return scores

    return scores_of


def _without_signals(data: PreparedData) -> str | None:
    kinds = data.manifest.kinds
    if len(target_codes(kinds)) < len(read_kinds(kinds)):
        return None
    return "all events of its histories are of target kinds, so it is the same as used items"


def _without_times(data: PreparedData) -> str | None:
    return None if data.manifest.time.kind == "timestamp" else "its events have no timestamps"


def _rule(name: str, title: str, order: Order, obstacle: Obstacle = lambda data: None) -> Baseline:
    return Baseline(name, title, partial(fit_order, order=order), obstacle, of_own_use=True)


OWN_ITEMS = (
    _rule("last_used", "last used items", lambda takes: np.argsort(takes.used)),
    _rule("most_used", "most used items", lambda takes: np.lexsort((takes.used, takes.uses))),
    _rule(
        "last_bought",
        "last bought items",
        lambda takes: np.lexsort((takes.used, takes.taken)),
        _without_signals,
    ),
    _rule(
        "most_bought",
        "most bought items",
        lambda takes: np.lexsort((takes.used, takes.uses, takes.counts)),
        _without_signals,
    ),
    _rule(
        "due_again",
        "items due again",
        lambda takes: np.lexsort((takes.used, takes.taken, takes.due)),
        _without_times,
    ),
    Baseline(
        "five_then_ease",
        "five last bought items, then EASE",
        fit_five_then_ease,
        limits=ease_limits,
        of_own_use=True,
    ),
)
