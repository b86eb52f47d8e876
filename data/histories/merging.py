"""Merges new events into the histories of prepared data, without sorting the old ones again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import Events, stable_order
from turret.data.events.event_files import PIECE
from turret.data.files.parallel import map_ordered
from turret.data.histories.filters import distinct_events
from turret.data.ranges import groups, ranges
from turret.data.reading.schema import Duplicates

_BITS = 63  # of a non-negative int64


@dataclass(frozen=True)
class SortedLog:
    """Events sorted by user and time, as arrays or memory maps.

    `offsets` int64 [U + 1] are the bounds of the users. User u of this log is the row `user_rows[u]` of the
    merged log, int32 and ascending, and item i the row `item_rows[i]`.
    """

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    times: NDArray[Any]
    weights: NDArray[np.float32] | None
    user_rows: NDArray[np.int32]
    item_rows: NDArray[np.int32]

    def lengths(self, user_count: int) -> NDArray[np.int64]:
        """Return the number of events of each row of the merged log."""
        lengths = np.zeros(user_count, dtype=np.int64)
        lengths[self.user_rows] = np.diff(self.offsets)
        return lengths

    def events(self, first: int, last: int) -> Events:
        """Return the events of the merged rows `first` to `last` (exclusive), by merged rows."""
        begin, end = np.searchsorted(self.user_rows, [first, last])
        edges = self.offsets[begin : end + 1]
        block = slice(int(edges[0]), int(edges[-1]))
        return Events(
            users=np.repeat(self.user_rows[begin:end], np.diff(edges)),
            items=self.item_rows[self.items[block]],
            times=np.asarray(self.times[block]),
            weights=None if self.weights is None else np.asarray(self.weights[block]),
        )


def merged_blocks(
    old: SortedLog, new: SortedLog, user_count: int, duplicates: Duplicates, has_positions: bool
) -> Iterator[Events]:
    """Yield the events of both logs sorted by user and time, with all events of a user in one block.

    Of equal events (one user, item and time), the merged log has as many as the log that has more of them:
    those of the new log are the ones that the old log has already. Other events at one time keep their order,
    the old ones first. A log with positions for times has no equal events, and all new ones come last.
    """
    totals = np.concatenate([[0], np.cumsum(old.lengths(user_count) + new.lengths(user_count))])

    def merge(rows: tuple[int, int]) -> Events:
        before, added = old.events(*rows), new.events(*rows)
        if has_positions:
            added = replace(added, times=added.times + len(old.items))
        else:
            added = added.take(~_known(before, added))
        events = _joined(before, added)
        return events if duplicates == "keep" else events.take(distinct_events(events, duplicates))

    yield from map_ordered(merge, [(int(a), int(b)) for a, b in pairwise(groups(totals, PIECE))])


def _joined(before: Events, added: Events) -> Events:
    """Return both in one, each sorted by user and time; at one time, those of `before` come first."""
    positions = _positions(before, added, "right")
    weights = None
    if before.weights is not None and added.weights is not None:
        weights = np.insert(before.weights, positions, added.weights)
    return Events(
        users=np.insert(before.users, positions, added.users),
        items=np.insert(before.items, positions, added.items),
        times=np.insert(before.times, positions, added.times),
        weights=weights,
    )


def _positions(before: Events, added: Events, side: Literal["left", "right"]) -> NDArray[np.int64]:
    """Return where the (user, time) of added events belong among those of `before`, int64 [E]."""
    if not len(before) or not len(added):
        return np.zeros(len(added), dtype=np.int64)
    users, times = (
        np.concatenate([getattr(before, name), getattr(added, name)]) for name in ("users", "times")
    )
    users = users.astype(np.int64) - int(users.min())
    if times.dtype.kind == "f" or _width(users) + _width(times) > _BITS:
        times = np.unique(times, return_inverse=True)[1]  # the ranks of times order as the times do
    packed = users << _width(times) | (times - int(times.min()))
    positions: NDArray[np.int64]
    positions = np.searchsorted(packed[: len(before)], packed[len(before) :], side=side)
    return positions


def _width(key: NDArray[Any]) -> int:
    """Return the bits that the range of the values needs."""
    return (int(key.max()) - int(key.min())).bit_length()


def _known(before: Events, added: Events) -> NDArray[np.bool_]:
    """Mask the added events that `before` has already: bool [E].

    Of n equal events that are added, as many are known as `before` has, up to n.
    """
    left, right = (_positions(before, added, side) for side in ("left", "right"))
    candidates = np.unique(ranges(left, right - left))  # the old events at the time of a new one of the user
    both = [
        np.concatenate([getattr(before, name)[candidates], getattr(added, name)])
        for name in ("users", "times", "items")
    ]
    is_added = np.arange(len(both[0])) >= len(candidates)
    order = stable_order(both)  # equal events follow each other, the old ones first
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([np.diff(key[order]) != 0 for key in both], axis=0)
    group = np.cumsum(is_first) - 1
    old_counts = np.bincount(group, weights=~is_added[order], minlength=1).astype(np.int64)
    number = np.arange(len(order)) - np.flatnonzero(is_first)[group] - old_counts[group]
    is_known = np.empty(len(order), dtype=bool)
    is_known[order] = number < old_counts[group]
    return is_known[is_added]
