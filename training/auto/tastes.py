"""Tastes: how much of the next item the categories of items tell."""

import numpy as np
from numpy.typing import NDArray

from turret.data.features import Bag, Column
from turret.data.prepared import PreparedData
from turret.training.randomness import stream

_USERS, _ROUNDING = 20_000, 1e-9


def tastes(data: PreparedData) -> dict[str, float]:
    """For each category or list of categories of items, the ratio of two probabilities, in the training part.

    The first is that two distinct items of a user share a value, the second that two of the log do; 1 says
    that users do not choose by this feature. One value of each item is drawn evenly, and items without one
    share none. At most 20,000 users, drawn once, are read. A feature without a value that two items share is
    left out.
    """
    users, items = _distinct_items(data)
    counts = np.bincount(users)
    pairs_of_users = int((counts * (counts - 1)).sum())
    # How often the item of each entry is in the log.
    frequencies = np.bincount(items)[items] if len(items) else items
    pairs_of_log = len(items) ** 2 - int(frequencies.sum())
    found = {}
    for feature in data.item_features.features:
        if feature.kind not in ("category", "multi") or not pairs_of_users or not pairs_of_log:
            continue
        events, values, shares = _values_of(data.item_features.columns[feature.name], items)
        size = feature.size
        of_user, of_log = (
            np.bincount(np.unique(keys, return_inverse=True)[1], weights=shares)
            for keys in (users[events] * size + values, values)
        )
        # Both without the pairs of an item with itself.
        within = float((of_user**2).sum() - (shares**2).sum())
        all_of_log, same_item = float((of_log**2).sum()), float((shares**2 * frequencies[events]).sum())
        if all_of_log - same_item > _ROUNDING * all_of_log:
            found[feature.name] = within / pairs_of_users / (all_of_log - same_item) * pairs_of_log
    return found


def _distinct_items(data: PreparedData) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Users, numbered from 0, and their distinct items: one entry a pair."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    chosen = stream(0, "tastes", 0).permutation(len(starts))[:_USERS].tolist()
    items = [np.unique(data.event_items[starts[user] : ends[user]]).astype(np.int64) for user in chosen]
    users = np.repeat(np.arange(len(items)), [len(own) for own in items])
    return users, np.concatenate([np.empty(0, dtype=np.int64), *items])


def _values_of(
    column: Column, items: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The known values of `items`: index in `items`, code, and one over the item's number of codes."""
    if not isinstance(column, Bag):
        codes = np.asarray(column)[items].astype(np.int64)
        known = np.flatnonzero(codes)
        return known, codes[known], np.ones(len(known))
    lengths = np.diff(column.offsets)[items]
    events = np.repeat(np.arange(len(items)), lengths)
    places = np.arange(len(events)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    codes = np.asarray(column.values)[column.offsets[items][events] + places].astype(np.int64)
    return events, codes, 1.0 / lengths[events]
