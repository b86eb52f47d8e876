"""The contract of baselines, rankers without training steps, and the pairs of users and items behind them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.ranges import groups, ranges
from turret.training.batches.event_times import first_since
from turret.training.evaluation.ranking import ScoresOf, popularity_order

Offsets = NDArray[np.int64]
Rows = NDArray[np.int32]

_EVENTS_A_BLOCK = 2**22
# Baselines read so many of a user's newest events: pairs grow with the square of the history's length.
MOST_EVENTS = 2_000


@dataclass(frozen=True)
class Baseline:
    """A ranker without training steps.

    Attributes:
        name: the name in `--baselines`.
        title: the name in sentences, such as "EASE".
        fit: fits the baseline on the training part of the data; the result scores users by their history
            before the given part, which is the history that the towers read.
        obstacle: the reason, as a clause, why the baseline can't be fitted on this data here, or None.
        limits: a clause about the part of the data that it is limited to, to bound its memory, or "".
        of_own_use: whether it ranks the items that the user has used; such a baseline is always there if
            used items are ranked, and never otherwise.
        of_queries: whether it ranks by the texts of queries, in place of histories.
        of_baskets: whether it is always there for baskets, which have no rules of users.
        is_live: whether it also counts later events than those of the training part, up to the request.
    """

    name: str
    title: str
    fit: Callable[[PreparedData, HistoryEnd], ScoresOf]
    obstacle: Callable[[PreparedData], str | None] = lambda data: None
    limits: Callable[[PreparedData], str] = lambda data: ""
    of_own_use: bool = False
    of_queries: bool = False
    of_baskets: bool = False
    is_live: bool = False


HistoryScores = Callable[[Offsets, Rows], NDArray[np.float32]]
"""Scores [U, N] of users from the offsets [U + 1] and the rows [P] of their distinct items; 0: unknown."""


def by_history(scores: HistoryScores, data: PreparedData, until: HistoryEnd) -> ScoresOf:
    """Score users by the distinct items of their history before `until`.

    Items with a score of zero follow by their popularity in the training part. Popularity is the order of the
    whole catalog for users without a history, and where no item has a score.
    """
    behind = popularity_order(data.item_counts("train"))

    def scores_of(users: NDArray[np.int64]) -> Tensor:
        offsets, items, _ = distinct_items(data, users, data.history_ends(until)[users])
        result = torch.from_numpy(scores(offsets, items))
        return torch.where(result == 0, behind, result)

    return scores_of


@dataclass(frozen=True)
class Interactions:
    """P distinct pairs of U users and N items, 8 bytes each.

    Attributes:
        used: float32 [U, N], sparse by rows, 1 for an item that the user has used.
        item_users: int64 [N], the number of users of each item.
        item_repeaters: int64 [N], the number of users who have used an item several times.
    """

    used: Any
    item_users: NDArray[np.int64]
    item_repeaters: NDArray[np.int64]

    @classmethod
    def training(cls, data: PreparedData, since: float = -np.inf) -> "Interactions":
        """The pairs of the training part, of the newest `MOST_EVENTS` events of each user.

        Events before `since`, in the unit of `data.times`, are left out. Signals of a later part are left
        out, although the history of its first target has them.
        """
        offsets, blocks = [np.zeros(1, dtype=np.int64)], []
        repeaters = np.zeros(len(data.item_ids), dtype=np.int64)
        ends = np.asarray(data.bounds("train")[1])
        begins = first_since(data, since) if np.isfinite(since) else np.asarray(data.offsets[:-1])
        for first, last in pairwise(groups(np.asarray(data.offsets), _EVENTS_A_BLOCK).tolist()):
            bounds, rows, counts = distinct_items(
                data, np.arange(first, last), ends[first:last], begins[first:last]
            )
            repeaters += np.bincount(rows[counts > 1], minlength=len(repeaters))
            offsets.append(bounds[1:] + offsets[-1][-1])
            blocks.append(rows)
        items = np.concatenate(blocks)
        used = sparse_rows(np.concatenate(offsets), items, len(repeaters))
        return cls(used, np.bincount(items, minlength=len(repeaters)), repeaters)


def sparse_rows(offsets: Offsets, items: Rows, item_count: int) -> Any:
    """The `csr_matrix` [U, N] of ones, float32, in the columns of each user's items."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(items), dtype=np.float32)
    return csr_matrix((ones, items, offsets), shape=(len(offsets) - 1, item_count))


def used_pairs(
    data: PreparedData, users: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The newest `MOST_EVENTS` events of `users` [U] from `begins` to `ends`, by time: u N + item [E]."""
    starts = np.clip(ends - MOST_EVENTS, begins, ends)
    owners = np.repeat(np.arange(len(users)), ends - starts)
    return owners * len(data.item_ids) + data.event_items[ranges(starts, ends - starts)]


def distinct_items(
    data: PreparedData,
    users: NDArray[np.int64],
    ends: NDArray[np.int64],
    begins: NDArray[np.int64] | None = None,
) -> tuple[Offsets, Rows, NDArray[np.int64]]:
    """The distinct items, ascending, of the newest `MOST_EVENTS` events of `users` [U] before `ends` [U].

    Events before the positions `begins` [U] are left out.

    Returns:
        Offsets int64 [U + 1], rows int32 [P], and the number of events of each row, int64 [P]; user u has
        `rows[offsets[u]:offsets[u + 1]]`.
    """
    item_count = len(data.item_ids)
    begins = data.offsets[users] if begins is None else begins
    pairs, counts = np.unique(used_pairs(data, users, begins, ends), return_counts=True)
    offsets = np.searchsorted(pairs, np.arange(len(users) + 1) * item_count)
    return offsets.astype(np.int64), (pairs % item_count).astype(np.int32), counts
