"""The events of prepared data, as the store keeps them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import stable_order
from turret.data.prepared import PreparedData
from turret.data.ranges import groups, ranges
from turret.service.stores.contract import CLOCK_SKEW, Event, oldest_kept

PORTION = 1 << 17  # events in memory at a time
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class KeptEvents:
    """The events that a store keeps: the `newest` of each user, of times from `oldest` on.

    Times are in milliseconds since 1970. A time after `latest` comes from a wrong clock and becomes `now`.
    """

    newest: int
    oldest: int
    latest: int
    now: int

    @classmethod
    def of(cls, newest: int, keep_days: int | None) -> "KeptEvents":
        """Make the limits of a service with these settings, at this moment."""
        now = time.time_ns() // 1_000_000
        return cls(newest, oldest_kept(keep_days, now), now + CLOCK_SKEW, now)


def logged_events(
    data: PreparedData, kept: KeptEvents, portion: int = PORTION
) -> Iterator[tuple[int, list[list[Event]]]]:
    """Yield the number of events read, and of these the kept events of each user, oldest first.

    A portion has the events of whole users. Users come in the order of their ids as text, which is the order
    of the tables of a store in SQLite. An event id is made of time, item and the number among equal events,
    so it is the same whenever the log is read. A log without times has the positions in a user's history as
    times, which are before those of all events to come.
    """
    order = _text_order(data.users.ids(range(len(data.users))))
    totals = np.concatenate([[0], np.cumsum(np.diff(data.offsets)[order])])
    for first, last in pairwise(groups(totals, portion)):
        users = order[first:last]
        yield int(totals[last] - totals[first]), list(_portion(data, users, kept))


def _text_order(ids: Sequence[int | str]) -> Rows:
    # Texts are in order already: prepared data sorts its ids.
    if not ids or isinstance(ids[0], str):
        return np.arange(len(ids))
    return np.argsort(np.array([str(number).encode() for number in ids]), kind="stable")


def _portion(data: PreparedData, users: Rows, kept: KeptEvents) -> Iterator[list[Event]]:
    """Yield the kept events of each of the `users` [U], rows; users without one are left out."""
    starts = np.asarray(data.offsets[users])
    lengths = data.offsets[users + 1] - starts
    positions = ranges(starts, lengths)
    owners = np.repeat(np.arange(len(users), dtype=np.int32), lengths)
    times = np.asarray(data.times[positions])
    if data.manifest.split.kind == "files":  # elsewhere the parts of a history follow each other in time
        order = stable_order([owners, times])
        positions, times = positions[order], times[order]
    from_end = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(positions))
    if data.manifest.time.kind != "timestamp":
        times = lengths[owners] - from_end
    items = np.asarray(data.event_items[positions])
    numbers = _numbers(owners, items, times)
    stored_times = np.where(times > kept.latest, kept.now, np.maximum(times, 0))
    is_kept = (from_end <= kept.newest) & (stored_times >= kept.oldest)
    rows = zip(
        data.item_ids.ids(items[is_kept]),
        times[is_kept].tolist(),
        stored_times[is_kept].tolist(),
        numbers[is_kept].tolist(),
        strict=True,
    )
    counts = np.bincount(owners[is_kept], minlength=len(users)).tolist()
    for user, count in zip(map(str, data.users.ids(users)), counts, strict=True):
        if count:
            yield [
                Event(f"log:{time}:{number}:{item}", user, item, stored)
                for item, time, stored, number in islice(rows, count)
            ]


def _numbers(owners: NDArray[np.int32], items: NDArray[np.int32], times: NDArray[Any]) -> Rows:
    """Return the number of earlier events with the same owner, item and time: int64 [E]."""
    keys = (owners, items, times)
    order = stable_order(keys)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    places = np.arange(len(order))
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return numbers
