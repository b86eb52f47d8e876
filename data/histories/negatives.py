"""Negatives, the items that a user did not choose, beside the event in whose place they were offered."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import Events
from turret.data.files import ArrayFile


def placed(
    rows: Events, targets: NDArray[np.int8] | None = None
) -> tuple[Events, Events, NDArray[np.int64], int, int]:
    """Divide sorted `rows` with labels, of which at least one is an event, into events and negatives.

    A negative belongs to a target, an event of the kinds `targets` (all without them), of its user and part:
    the next one in order, or the newest one if only that is at the same time. So no event has a negative from
    a later time.

    Returns:
        the E events; M negatives, sorted by the event that each belongs to; the positions of these events
        among the E, int64 [M]; the number of other negatives that come after the last target of their user;
        and the number of those that are the item of their event.
    """
    assert rows.labels is not None
    chosen = rows.labels == 1
    events, negatives = rows.take(chosen), rows.take(~chosen)
    is_target = chosen & rows.are_of(targets)
    # The positions of targets among the events, and behind them one of none.
    places = np.append(np.flatnonzero(is_target[chosen]), len(events))
    following = np.cumsum(is_target)[~chosen]
    before, following = np.where(following > 0, places[following - 1], -1), places[following]
    has_before, has_next = (_same_group(events, place, negatives) for place in (before, following))
    last = len(events) - 1
    times = (events.times[before.clip(0, last)], events.times[following.clip(0, last)])
    at_before = has_before & (times[0] == negatives.times)
    takes_before = at_before & ~(has_next & (times[1] == negatives.times))
    positions = np.where(takes_before, before, following)
    is_placed = takes_before | has_next
    is_equal = is_placed & (events.items[positions.clip(0, last)] == negatives.items)
    kept = np.flatnonzero(is_placed & ~is_equal)
    kept = kept[np.argsort(positions[kept], kind="stable")]
    return (
        replace(events, labels=None),
        negatives.take(kept),
        positions[kept],
        int((~is_placed).sum()),
        int(is_equal.sum()),
    )


def _same_group(events: Events, positions: NDArray[np.int64], negatives: Events) -> NDArray[np.bool_]:
    """Tell which events at `positions` exist and are of the user and part of their negative: bool [M]."""
    exists = (positions >= 0) & (positions < len(events))
    at = positions.clip(0, len(events) - 1)
    exists &= events.users[at] == negatives.users
    if events.parts is not None and negatives.parts is not None:
        exists &= events.parts[at] == negatives.parts
    return exists


class NegativeFiles:
    """`negatives.npy`, `negative_offsets.npy` and, with weights, `negative_weights.npy` of a prepared folder.

    Write inside the `with` block. `targets` are the codes of the kinds of targets, None where all events are
    alike. `count` is the number of negatives so far.
    """

    def __init__(self, folder: Path, has_weights: bool, targets: NDArray[np.int8] | None = None) -> None:
        self._targets = targets
        self.count = self.after = self.equal = 0
        self._items = ArrayFile(folder / "negatives.npy", np.int32)
        self._offsets = ArrayFile(folder / "negative_offsets.npy", np.int64)
        self._weights = ArrayFile(folder / "negative_weights.npy", np.float32) if has_weights else None
        self._offsets.write(np.zeros(1, dtype=np.int64))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for array in (self._items, self._offsets, self._weights):
            if array is not None:
                array.close()

    def without(self, blocks: Iterable[Events]) -> Iterator[Events]:
        """Yield the events of sorted blocks of rows with labels, and write their negatives."""
        for rows in blocks:
            events, negatives, positions, after, equal = placed(rows, self._targets)
            counts: NDArray[Any] = np.bincount(positions, minlength=len(events))
            self._offsets.write(self.count + np.cumsum(counts, dtype=np.int64))
            self._items.write(negatives.items)
            if self._weights is not None and negatives.weights is not None:
                self._weights.write(negatives.weights)
            self.count += len(negatives)
            self.after += after
            self.equal += equal
            yield events

    def removed(self) -> list[tuple[str, int]]:
        """Return the numbers of the rows that are negatives of no event, by reason."""
        return [
            ("negatives after the last event", self.after),
            ("negatives equal to their event", self.equal),
        ]
