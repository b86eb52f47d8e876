"""Figures of prepared data that decide between experiments."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.features import Bag, Column
from turret.data.prepared import PreparedData
from turret.training.batches.batches import check_trainable
from turret.training.randomness import stream
from turret.training.verdict.order import Order, order_of
from turret.training.verdict.verdict import MANY

# The users whose tastes are read.
_TASTED_USERS, _ROUNDING = 20_000, 1e-9


@dataclass(frozen=True)
class Facts:
    """Figures of prepared data.

    Attributes:
        items: the size of the catalog.
        examples: the number of training events that have an earlier one of their user.
        item_features: the names of the items' features.
        item_tastes: for those of them that are a category or a list of categories, how many times as often
            two items of a user share a value as two items of the log.
        user_features: the names of the users' features.
        order: what the order of the histories tells.
        in_file_order: whether the events have the order of their file, for want of times.
        repeat_share: the share of all events that repeat an item of an earlier visit of their user.
        has_validation: whether some user has an event in the validation part.
        has_negatives: whether events have labels or given negatives.
    """

    items: int
    examples: int
    item_features: tuple[str, ...]
    item_tastes: Mapping[str, float]
    user_features: tuple[str, ...]
    order: Order
    in_file_order: bool
    repeat_share: float
    has_validation: bool
    has_negatives: bool


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data. Times are bounded: the order is measured on at most 20,000 users.

    Raises:
        TrainingError: nothing can be trained on the data.
    """
    check_trainable(data)
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    validation_starts, validation_ends = data.bounds("validation")
    share = data.manifest.repeat_share
    return Facts(
        items=len(data.item_ids),
        examples=int(np.maximum(ends - starts - 1, 0).sum()),
        item_features=tuple(feature.name for feature in data.manifest.item_features),
        item_tastes=tastes(data),
        user_features=tuple(feature.name for feature in data.manifest.user_features),
        order=order_of(data, repeats=share >= MANY),
        in_file_order=data.manifest.time.kind == "position",
        repeat_share=share,
        has_validation=bool((validation_ends > validation_starts).any()),
        has_negatives=data.negatives is not None,
    )


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
    chosen = stream(0, "tastes", 0).permutation(len(starts))[:_TASTED_USERS].tolist()
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
