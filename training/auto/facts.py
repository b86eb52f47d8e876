"""Figures of prepared data that decide between experiments."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turret.data.prepared import PreparedData
from turret.training.auto.tastes import tastes
from turret.training.verdict.repeats import repeat_share
from turret.training.verdict.unread import LEAST_RECURRENCES, recurrences


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
        order: how many times as often pairs of successive items recur as in shuffled histories; None where
            too few recur to tell.
        in_file_order: whether the events have the order of their file, for want of times.
        repeat_share: the share of all events that repeat an item of their user.
        has_validation: whether some user has an event in the validation part.
        has_negatives: whether events have labels or given negatives.
    """

    items: int
    examples: int
    item_features: tuple[str, ...]
    item_tastes: Mapping[str, float]
    user_features: tuple[str, ...]
    order: float | None
    in_file_order: bool
    repeat_share: float
    has_validation: bool
    has_negatives: bool


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data. Times are bounded: the order is measured on at most 20,000 users."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    validation_starts, validation_ends = data.bounds("validation")
    return Facts(
        items=len(data.item_ids),
        examples=int(np.maximum(ends - starts - 1, 0).sum()),
        item_features=tuple(feature.name for feature in data.manifest.item_features),
        item_tastes=tastes(data),
        user_features=tuple(feature.name for feature in data.manifest.user_features),
        order=_order(data),
        in_file_order=data.manifest.time.kind == "position",
        repeat_share=repeat_share(data),
        has_validation=bool((validation_ends > validation_starts).any()),
        has_negatives=data.negatives is not None,
    )


def _order(data: PreparedData) -> float | None:
    actual, shuffled = recurrences(data, False), recurrences(data, True)
    return None if max(actual, shuffled) < LEAST_RECURRENCES else actual / max(shuffled, 1)
