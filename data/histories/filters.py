"""Filters that need the whole log, as masks over its events."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import Events, stable_order
from turret.data.histories.histories import Block, Histories
from turret.data.reading.schema import Duplicates

Mask = NDArray[np.bool_]


def distinct_events(events: Events, policy: Duplicates) -> Mask:
    """Mask all but one of a user's events with an item: bool [E], for events that are in order.

    "first" and "last" keep the oldest and the newest event; "strongest" keeps that of the largest weight, the
    newest of equal ones; "exact" keeps one of those at the same time.
    Negatives are no events, and are kept.
    """
    if events.labels is not None:
        kept: Mask = events.labels == 0
        chosen = np.flatnonzero(~kept)
        kept[chosen] = distinct_events(replace(events.take(chosen), labels=None), policy)
        return kept
    keys: list[NDArray[Any]] = [events.users, events.items]
    if policy == "exact":
        keys.append(events.times)
    ranks = []  # of weights: integers are sorted faster
    if policy == "strongest" and events.weights is not None:
        ranks = [np.unique(events.weights, return_inverse=True)[1]]
    order = stable_order([*keys, *ranks])  # stable: duplicates stay in order of time
    is_new = np.zeros(len(order), dtype=bool)
    is_new[:1] = True
    for key in keys:
        is_new[1:] |= key[order][1:] != key[order][:-1]
    is_kept, is_last = np.zeros(len(order), dtype=bool), policy in ("last", "strongest")
    is_kept[order] = np.append(is_new[1:], [True] * bool(len(order))) if is_last else is_new
    return is_kept


@dataclass(frozen=True)
class Core:
    """The rows of the users, bool [U], and items, bool [N], that are kept; events between them are kept."""

    users: Mask
    items: Mask

    def keeps(self, block: Block) -> Mask:
        """Return the mask of the events of a block that are kept, bool [E]."""
        return self.users[block.users][block.events.users] & self.items[block.events.items]


def k_core(histories: Histories, item_count: int, min_user_events: int, min_item_events: int) -> Core:
    """Return the users and items with enough events, filtered repeatedly until all have enough.

    Dropping an item shortens histories and dropping a user makes items rarer; the largest set that meets both
    conditions does not depend on the order of application. The minima are one or more. Negatives count as
    events of neither, but an item that has no event stays where one is enough.
    """
    core = Core(np.ones(len(histories.offsets) - 1, dtype=bool), np.ones(item_count, dtype=bool))
    while True:
        users, items = _count(histories, core, min_item_events > 1)
        # Dropped events are not counted, so the core only shrinks.
        smaller = Core(users >= min_user_events, items >= min_item_events)
        if (smaller.users == core.users).all() and (smaller.items == core.items).all():
            return core
        core = smaller


def _count(
    histories: Histories, core: Core, events_of_items: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the events that `core` keeps of every user and of every item, by row.

    Of items also the negatives, unless `events_of_items`.
    """

    def count(block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = block.events.take(core.keeps(block))
        events = rows if rows.labels is None else rows.take(rows.labels == 1)
        users = np.bincount(events.users, minlength=len(block.offsets) - 1)
        counted = events if events_of_items else rows
        return users, np.bincount(counted.items, minlength=len(core.items))

    users: list[NDArray[np.int64]] = []
    items = np.zeros(len(core.items), dtype=np.int64)
    for of_users, of_items in histories.by_block(count):
        users.append(of_users)
        items += of_items
    return np.concatenate(users), items
