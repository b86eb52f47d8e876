"""Figures of prepared data that decide between experiments."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from turret.data.prepared import PreparedData
from turret.training.auto.tastes import tastes
from turret.training.baselines.registry import BASELINES
from turret.training.batches.batches import check_trainable
from turret.training.evaluation.evaluation import (
    first_targets,
    measure,
    relevant_items,
    sample_users,
    used_before,
)
from turret.training.evaluation.ranking import rank
from turret.training.randomness import stream
from turret.training.verdict.order import Order, order_of
from turret.training.verdict.repeats import MANY

# The users and the cut-off of the validation metric of a trial.
_USERS, _K = 5_000, 10


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
        order: the `Order.ratio` of the histories; None where too little recurs to tell.
        in_file_order: whether the events have the order of their file, for want of times.
        repeat_share: the share of all events that repeat an item of an earlier visit of their user.
        has_validation: whether some user has an event in the validation part.
        has_negatives: whether events have labels or given negatives.
        measured_order: the figures behind `order`.
        own_use: of data with many repeats, the validation NDCG@10 of the baselines of the user's own use, by
            their names, where used items are ranked.
        used_before: the share of validation users whose first target is an item that they had used before.
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
    measured_order: Order | None = None
    own_use: Mapping[str, float] = field(default_factory=dict)
    used_before: float = 0.0


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data. Times are bounded: the order is measured on at most 20,000 users.

    Raises:
        TrainingError: nothing can be trained on the data.
    """
    check_trainable(data)
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    validation_starts, validation_ends = data.bounds("validation")
    has_validation = bool((validation_ends > validation_starts).any())
    share = data.manifest.repeat_share
    order = order_of(data, repeats=share >= MANY)
    own_use, used = _own_use(data) if has_validation and share >= MANY else ({}, 0.0)
    return Facts(
        items=len(data.item_ids),
        examples=int(np.maximum(ends - starts - 1, 0).sum()),
        item_features=tuple(feature.name for feature in data.manifest.item_features),
        item_tastes=tastes(data),
        user_features=tuple(feature.name for feature in data.manifest.user_features),
        order=order.ratio,
        in_file_order=data.manifest.time.kind == "position",
        repeat_share=share,
        has_validation=has_validation,
        has_negatives=data.negatives is not None,
        measured_order=order,
        own_use=own_use,
        used_before=used,
    )


def _own_use(data: PreparedData) -> tuple[dict[str, float], float]:
    """The validation NDCG of each baseline of own use, and the share of users who take an item again."""
    relevant = sample_users(relevant_items(data, "validation"), _USERS, stream(0, "validation users", 0))
    found = {}
    for name, baseline in BASELINES.items():
        if baseline.of_own_use:
            scores_of = baseline.fit(data, "validation").scores_of
            ranked = rank(scores_of, data, relevant.users, "validation", _K, exclude_seen=False)
            values, _ = measure(ranked, relevant, [_K], len(data.item_ids), f"ranking by {name}")
            found[name] = float(values[f"ndcg@{_K}"].mean())
    first = first_targets(data, "validation", relevant.users)
    return found, float(used_before(data, first, "validation").mean())
