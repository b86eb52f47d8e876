"""Figures of prepared data that decide between experiments."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from turret.data.features import Bag, Column
from turret.data.kinds import Seen, read_kinds
from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.training.batches.batches import check_trainable, target_counts
from turret.training.evaluation.seen import leaves_out_all
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
        kinds: the number of kinds of events in histories.
        consumes_all: whether all of these consume their items for ever.
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
    kinds: int = 0
    consumes_all: bool = False

    @property
    def ranks_repeats(self) -> bool:
        """Whether used items are ranked: there are many repeats, or kinds that don't consume."""
        return not self.consumes_all if self.kinds else self.repeat_share >= MANY

    @property
    def exclude_seen(self) -> Seen:
        """The setting of `evaluation.exclude_seen`: kinds tell by themselves."""
        return None if self.kinds else not self.ranks_repeats


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data. Times are bounded: the order is measured on at most 20,000 users.

    Raises:
        TrainingError: nothing can be trained on the data.
    """
    check_trainable(data, "causal_window")
    starts, ends = data.bounds("validation")
    kinds = len(read_kinds(data.manifest.kinds))
    facts = Facts(
        items=len(data.item_ids),
        examples=int(target_counts(data).sum()),
        item_features=tuple(feature.name for feature in data.manifest.item_features),
        item_tastes=tastes(data),
        user_features=tuple(feature.name for feature in data.manifest.user_features),
        order=Order(None),
        in_file_order=data.manifest.time.kind == "position",
        repeat_share=data.manifest.repeat_share,
        has_validation=bool((data.first_targets(starts, ends) < ends).any()),
        has_negatives=data.negatives is not None,
        kinds=kinds,
        consumes_all=kinds > 0 and leaves_out_all(data, None),
    )
    return replace(facts, order=order_of(data, repeats=facts.ranks_repeats))


def tastes(data: PreparedData) -> dict[str, float]:
    """For each category or list of categories of items, the ratio of two probabilities, in the training part.

    The first is that two distinct items of a user share a value, the second that two of the log do; 1 says
    that users do not choose by this feature. One value of each item is drawn evenly, and items without one
    share none. At most 20,000 users, drawn once, are read. A feature without a value that two items share is
    left out.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    chosen = stream(0, "tastes", 0).permutation(len(starts))[:_TASTED_USERS]
    lengths = (ends - starts)[chosen]
    items = data.event_items[ranges(starts[chosen], lengths)].astype(np.int64)
    used = pl.DataFrame({"user": np.repeat(chosen, lengths), "item": items}).unique(maintain_order=True)
    used = used.with_columns(of_user=pl.len().over("user"), of_item=pl.len().over("item"))
    pairs_of_users = int((used["of_user"].cast(pl.Int64) - 1).sum())
    pairs_of_log = len(used) ** 2 - int(used["of_item"].sum())
    found = {}
    for feature in data.item_features.features:
        if feature.kind not in ("category", "multi", "path") or not pairs_of_users or not pairs_of_log:
            continue
        entries = used.join(_values_of(data.item_features.columns[feature.name]), on="item")
        alone = entries["share"] ** 2
        # Both without the pairs of an item with itself.
        within = _alike(entries, "user", "value") - float(alone.sum())
        all_of_log, same_item = _alike(entries, "value"), float((alone * entries["of_item"]).sum())
        if all_of_log - same_item > _ROUNDING * all_of_log:
            found[feature.name] = within / pairs_of_users / (all_of_log - same_item) * pairs_of_log
    return found


def _alike(entries: pl.DataFrame, *groups: str) -> float:
    """The sum over groups of the squared sum of their shares: pairs of entries that share a value."""
    sums = entries.group_by(*groups, maintain_order=True).agg(pl.col("share").sum())
    return float((sums["share"] ** 2).sum())


def _values_of(column: Column) -> pl.DataFrame:
    """The known values of all items: `item`, `value`, and `share`, one over the item's number of values."""
    if isinstance(column, Bag):
        lengths = np.diff(column.offsets)
        items = np.repeat(np.arange(len(lengths)), lengths)
        return pl.DataFrame(
            {"item": items, "value": np.asarray(column.values), "share": 1.0 / lengths[items]}
        )
    assert isinstance(column, np.ndarray)
    items = np.flatnonzero(column)
    return pl.DataFrame({"item": items, "value": np.asarray(column)[items], "share": np.ones(len(items))})
