"""Figures of prepared data, and the experiments that fit them, with settings by the size of the log."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from turret.data.errors import ConfigurationError
from turret.data.features.columns import Bag, Column
from turret.data.kinds import Seen, read_kinds
from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.training.batches.batches import check_trainable, target_counts
from turret.training.config.experiment import ExperimentConfig, load_experiment, with_settings
from turret.training.randomness import stream
from turret.training.used_items import Targets, first_uses, leaves_out_all
from turret.training.verdict.order import ORDERED_RATIO, Order, order_of
from turret.training.verdict.verdict import MANY

# The users whose tastes are read.
_TASTED_USERS, _ROUNDING = 20_000, 1e-9
# Pairs of successive items that recur less often than this, relative to shuffled histories, show no order;
# from ORDERED on, the order is certain. Between the two, trials decide.
UNORDERED, ORDERED = 1.1, ORDERED_RATIO
# Two items of a user that share a value more seldom than this, relative to two of the log, show no taste.
UNTOLD = 1.1
# A larger catalog is scored by samples; a large one with features by the items of the batch.
MOST_SCORED, MOST_ENCODED = 100_000, 20_000
# Smaller logs favour the transformer with much dropout.
SMALL_LOG = 200_000
STEPS_AN_EPOCH, SMALLEST_BATCH = 100, 256
# A training reads at least and at most so many examples, within these numbers of epochs.
LEAST_EXAMPLES, MOST_EXAMPLES, FEWEST_EPOCHS, MOST_EPOCHS = 4_000_000, 50_000_000, 10, 100
# Few users make a noisy validation, and their epochs are short: training waits for a fifth of all epochs.
PATIENCE, PATIENCE_SHARE = 5, 5

Settings = dict[str, object]
_SAMPLED = {"loss": "sampled_softmax", "sampler": {"kind": "uniform", "negatives": 1024}}
_IN_BATCH = {
    "loss": "sampled_softmax_corrected",
    "sampler": {"kind": "in_batch", "frequencies": "streaming"},
    "mask_known": True,
}
# What is new to a user of a log with repeats follows single items, such as the device of an accessory. More
# dimensions hold more of such pairs, and a mean without a hidden layer learns them with less data.
_OF_PAIRS: Settings = {"tower.dimension": 128}
_LINEAR: Settings = {**_OF_PAIRS, "tower.user.hidden": [], "tower.user.dropout": 0.2}
_LINEAR_SET: Settings = {**_OF_PAIRS, "tower.user.hidden": [], "training.learning_rate": 3e-3}


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
        repeat_share: the share of the training events that repeat an item of an earlier visit of their user.
        ranks_repeats: whether used items are ranked: there are many repeats, or kinds that don't consume.
        kinds: the number of kinds of events in histories.
        half_life: `training.half_life`, where what is popular changes.
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
    ranks_repeats: bool
    has_validation: bool
    has_negatives: bool
    kinds: int = 0
    half_life: float = 0.0

    @property
    def exclude_seen(self) -> Seen:
        """The setting of `evaluation.exclude_seen`: kinds tell by themselves."""
        return None if self.kinds else not self.ranks_repeats


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data, in bounded time. Raises TrainingError where nothing can be trained on it."""
    check_trainable(data, "causal_window")
    starts, ends = data.bounds("validation")
    kinds, share = len(read_kinds(data.manifest.kinds)), data.manifest.repeat_share
    ranks_repeats = not leaves_out_all(data, None) if kinds else share >= MANY
    targets = Targets(data, first_uses(data)) if ranks_repeats else None
    return Facts(
        items=len(data.item_ids),
        examples=int(target_counts(data, targets=targets).sum()),
        item_features=tuple(feature.name for feature in data.manifest.item_features),
        item_tastes=tastes(data),
        user_features=tuple(feature.name for feature in data.manifest.user_features),
        order=order_of(data, repeats=ranks_repeats),
        in_file_order=data.manifest.time.kind == "position",
        repeat_share=share,
        ranks_repeats=ranks_repeats,
        has_validation=bool((data.first_targets(starts, ends) < ends).any()),
        has_negatives=data.negatives is not None,
        kinds=kinds,
    )


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
        is_shared = feature.form in ("code", "codes") and not feature.of.is_content
        if not is_shared or not pairs_of_users or not pairs_of_log:
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


def _training(facts: Facts, base: ExperimentConfig) -> Settings:
    """The settings of a shipped experiment that the size of the log replaces, and those that all share.

    Batches are those of the experiment where an epoch has enough of them, and so are the epochs, but for
    small and large logs.
    """
    batch = SMALLEST_BATCH
    while batch < base.training.batch_size and batch * 1.5 * STEPS_AN_EPOCH < facts.examples:
        batch *= 2
    examples = max(facts.examples, 1)
    at_most = min(base.training.epochs, MOST_EXAMPLES // examples)
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, at_most, LEAST_EXAMPLES // examples))
    return {
        "training.batch_size": batch,
        "training.epochs": epochs,
        "training.patience": max(PATIENCE, epochs // PATIENCE_SHARE),
        "training.metric": "ndcg@10",
        "training.refit": True,
        "training.half_life": facts.half_life,
        "evaluation.exclude_seen": facts.exclude_seen,
    }


def telling_categories(facts: Facts) -> tuple[str, ...]:
    """The categories of items by which users choose.

    The logarithm of the ratio is the information of a shared value. Features with less than half that of the
    best say little beside it.
    """
    least = max(UNTOLD, max(facts.item_tastes.values(), default=0.0) ** 0.5)
    return tuple(name for name, ratio in facts.item_tastes.items() if ratio >= least)


def candidates(
    facts: Facts, overrides: Mapping[str, object]
) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """The experiments to try, by name, the most promising first; `overrides` replace their settings.

    Returns:
        The experiments, and those that `overrides` contradict with the message.

    Raises:
        ConfigurationError: the overrides contradict every candidate.
    """
    chosen: dict[str, ExperimentConfig] = {}
    refused: dict[str, ConfigurationError] = {}
    for name, (base, own) in _kinds(facts).items():
        experiment = load_experiment(base, {**_training(facts, load_experiment(base)), **own})
        try:
            chosen[name] = with_settings(experiment, overrides)
        except ConfigurationError as error:
            refused[name] = error
    if not chosen:
        raise next(iter(refused.values()))
    return chosen, {name: str(error) for name, error in refused.items()}


def _kinds(facts: Facts) -> dict[str, tuple[str, Settings]]:
    """The names of candidates, each with a shipped experiment and the settings that differ from it.

    The first is the favourite: its training time bounds the trials of the others. A log in the order of its
    file may have been sorted by anything, so its favourite is one without order.
    """
    sampled: Settings = {"objective": _SAMPLED} if facts.items > MOST_SCORED else {}
    of_ids = {**sampled, **(_LINEAR_SET if facts.ranks_repeats else {})}
    read, hidden, as_set = sampled, Settings(), of_ids
    if facts.item_features:
        in_batch: Settings = {"objective": _IN_BATCH} if facts.items > MOST_ENCODED else {}
        read, hidden = {"tower.item.features": "all", **in_batch}, {"tower.item.hidden": [128]}
        # A history without order: features would tell the item to predict by itself. Ids beside them are
        # hidden half of the time: where features tell the taste, ids learn noise.
        as_set = {**read, "tower.user.leave_out": True, "tower.item.id_dropout": 0.5}
    ordered: dict[str, tuple[str, Settings]] = {}
    ratio = facts.order.ratio
    if ratio is None or ratio >= UNORDERED:
        names = ["transformer", "transformer_short"]
        names = names[::-1] if facts.examples < SMALL_LOG else names
        ordered = {name: (name, sampled) for name in (names[:1] if facts.ranks_repeats else names)}
    unordered: dict[str, tuple[str, Settings]] = {}
    if ratio is None or ratio < ORDERED or facts.in_file_order:
        unordered["set"] = ("ids", as_set)
        if telling := list(telling_categories(facts)):
            # Texts and numbers tell items apart as ids do. Where users choose within categories by popularity
            # alone, both learn noise, and so do categories that say nothing.
            own = {**as_set, "tower.item.features": telling, "tower.item.id_dropout": 0.9}
            unordered["categories"] = ("ids", own)
    kinds = {**unordered, **ordered} if facts.in_file_order else {**ordered, **unordered}
    if facts.item_features or facts.user_features:
        kinds["features"] = ("full_softmax", {**read, **hidden, "tower.user.features": "all"})
    if facts.ranks_repeats:
        # First uses follow single items more than their order: towers without it learn them in a fraction of
        # the time, by which the trials of the others are bounded.
        first: dict[str, tuple[str, Settings]] = {"pooled": ("full_softmax", {**sampled, **_LINEAR})}
        if facts.item_features or "set" not in kinds:
            first["ids"] = ("ids", of_ids)
        kinds = {**first, **kinds}
    elif not (facts.item_features or facts.user_features):
        kinds["pooled"] = ("full_softmax", sampled)
    if facts.kinds > 1:
        favourite, (base, settings) = next(iter(kinds.items()))
        kinds[f"{favourite}_without_kinds"] = (base, {**settings, "tower.user.kinds": False})
    return kinds
