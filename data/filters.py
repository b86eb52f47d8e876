"""Filters that need the whole log, as masks over its events."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from data.packing import Events

Mask = NDArray[np.bool_]


def without_duplicates(events: Events, policy: Literal["exact", "first", "last"]) -> Mask:
    """Keep one of several events that a user has with an item: bool [E] for events that are in order.

    "first" and "last" keep the oldest and the newest one; "exact" keeps one of those that also share the
    time.
    """
    keys: list[NDArray[Any]] = [events.items, events.users]
    if policy == "exact":
        keys.insert(0, events.times)
    order = np.lexsort(keys)  # Stable: equal events stay in the order of time.
    is_new = np.zeros(len(order), dtype=bool)
    is_new[:1] = True
    for key in keys:
        is_new[1:] |= key[order][1:] != key[order][:-1]
    kept = np.zeros(len(order), dtype=bool)
    kept[order] = np.append(is_new[1:], [True] * bool(len(order))) if policy == "last" else is_new
    return kept


def k_core(events: Events, min_user_events: int, min_item_events: int) -> Mask:
    """Keep users and items with enough events, bool [E]: repeated until all that are left have enough.

    Dropping an item shortens histories and dropping a user makes items rarer; the largest set in which both
    conditions hold is the same in whichever order they are applied.
    """
    kept = np.ones(len(events), dtype=bool)
    while True:
        enough = _is_frequent(events.users, kept, min_user_events)
        enough &= _is_frequent(events.items, kept, min_item_events)
        if (enough | ~kept).all():
            return kept
        kept &= enough


def _is_frequent(rows: NDArray[np.int32], kept: Mask, minimum: int) -> Mask:
    counts = np.bincount(rows[kept], minlength=int(rows.max(initial=0)) + 1)
    return np.asarray(counts[rows] >= minimum)
