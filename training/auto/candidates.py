"""Figures of prepared data, and the experiments that fit them, with settings by the size of the log."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

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

# `tastes` reads so many users, and takes relative differences below _ROUNDING for rounding errors.
_TASTED_USERS, _ROUNDING = 20_000, 1e-9
# Histories whose pairs of successive items recur less than UNORDERED times as often as in shuffled histories
# show no order; from ORDERED on, the order is certain. Between the two ratios, trials decide.
UNORDERED, ORDERED = 1.1, ORDERED_RATIO
# Users whose items share a value less than UNTOLD times as often as two items of the log show no taste.
UNTOLD = 1.1
# Above MOST_SCORED items, a step scores a sample of the catalog; above MOST_ENCODED items with features, it
# scores the items of the batch.
MOST_SCORED, MOST_ENCODED = 100_000, 20_000
# Up to MOST_PAIRED items, factors of pairs may go beside the towers, in so many columns.
MOST_PAIRED, PAIRS = 20_000, 256
# Where the popularity of items changes, one candidate predicts this share of the events, the newest.
RECENT, IS_RECENT = 0.25, "_recent"
# Smaller logs favour the transformer with much dropout.
SMALL_LOG = 200_000
STEPS_AN_EPOCH, SMALLEST_BATCH = 100, 256
# A training reads between the least and the most examples, as far as the limits of epochs allow.
LEAST_EXAMPLES, MOST_EXAMPLES, FEWEST_EPOCHS, MOST_EPOCHS = 4_000_000, 50_000_000, 10, 100
# With few users, validation is noisy and epochs are short, so training waits for a fifth of all epochs.
PATIENCE, PATIENCE_SHARE = 5, 5

Settings = dict[str, object]
_SAMPLED = {"loss": "sampled_softmax", "sampler": {"kind": "uniform", "negatives": 1024}}
_IN_BATCH = {
    "loss": "sampled_softmax_corrected",
    "sampler": {"kind": "in_batch", "frequencies": "streaming"},
    "mask_known": True,
}
# In a log with repeats, items that are new to a user follow single items, as an accessory follows its device.
# More dimensions hold more of such pairs, and a mean without a hidden layer learns them with less data.
_OF_PAIRS: Settings = {"tower.dimension": 128}
_LINEAR: Settings = {**_OF_PAIRS, "tower.user.hidden": [], "tower.user.dropout": 0.2}
_LINEAR_SET: Settings = {**_OF_PAIRS, "tower.user.hidden": [], "training.learning_rate": 3e-3}


@dataclass(frozen=True)
class Facts:
    """Figures of prepared data.

    Attributes:
        items: the size of the catalog.
        examples: the number of training events with an earlier event of the same user.
        item_features: the names of the items' features.
        item_tastes: for item features that are a category or a list of categories, how many times as often
            two items of a user share a value as two items of the log do.
        user_features: the names of the users' features.
        context_features: the names of the features of contexts.
        order: how well the order of the histories predicts the next item.
        in_file_order: whether the events have no times, so that their order is that of their file.
        repeat_share: the share of the training events that repeat an item of an earlier visit of their user.
        ranks_repeats: whether used items are ranked, for many repeats or for kinds that don't consume.
        kinds: the number of kinds of events in histories.
        half_life: the value of `training.half_life`, above 0 where the popularity of items changes.
        since: the value of `training.since` of one candidate there.
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
    since: str | None = None
    context_features: tuple[str, ...] = ()

    @property
    def exclude_seen(self) -> Seen:
        """The value of `evaluation.exclude_seen`: None for data with kinds, whose own settings decide."""
        return None if self.kinds else not self.ranks_repeats


def facts_of(data: PreparedData) -> Facts:
    """Measure prepared data, in bounded time. Raises TrainingError if no tower can be trained on it."""
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
        context_features=tuple(feature.name for feature in data.manifest.context_features),
    )


def tastes(data: PreparedData) -> dict[str, float]:
    """The ratio of two probabilities in the training part, for each category or list of categories of items.

    The first probability is that two distinct items of a user share a value, the second that two distinct
    items of the log do; a ratio of 1 says that users do not choose by this feature. One value of each item is
    drawn evenly, and items without a value share none. At most 20,000 users, drawn once, are read. A feature
    without a value that two items share is left out.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    chosen = stream(0, "tastes", 0).permutation(len(starts))[:_TASTED_USERS]
    lengths = (ends - starts)[chosen]
    items = data.event_items[ranges(starts[chosen], lengths)].astype(np.int64)
    used = pl.DataFrame({"user": np.repeat(chosen, lengths), "item": items}).unique(maintain_order=True)
    used = used.with_columns(of_user=pl.len().over("user"), of_item=pl.len().over("item"))
    pairs_of_users = int((used["of_user"].cast(pl.Int64) - 1).sum())
    pairs_of_log = len(used) ** 2 - int(used["of_item"].sum())
    ratios = {}
    for feature in data.item_features.features:
        is_shared = feature.form in ("code", "codes") and not feature.of.is_content
        if not is_shared or not pairs_of_users or not pairs_of_log:
            continue
        entries = used.join(_values_of(data.item_features.columns[feature.name]), on="item")
        alone = entries["share"] ** 2
        # Both sums leave out the pairs of an item with itself.
        within = _alike(entries, "user", "value") - float(alone.sum())
        all_of_log, same_item = _alike(entries, "value"), float((alone * entries["of_item"]).sum())
        if all_of_log - same_item > _ROUNDING * all_of_log:
            ratios[feature.name] = within / pairs_of_users / (all_of_log - same_item) * pairs_of_log
    return ratios


def _alike(entries: pl.DataFrame, *groups: str) -> float:
    """The sum over groups of the squared sum of their shares: the pairs of entries that share a value."""
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
    """The settings that replace those of a shipped experiment: by the size of the log, or for all candidates.

    The batch size is that of the experiment if an epoch has enough batches of it, and so is the number of
    epochs except for small and large logs.
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
        **({"tower.user.context_features": "all"} if facts.context_features else {}),
    }


def telling_categories(facts: Facts) -> tuple[str, ...]:
    """The categories of items by which users choose.

    The logarithm of the ratio is the information of a shared value. A feature with less than half the
    information of the best says little beside it.
    """
    least = max(UNTOLD, max(facts.item_tastes.values(), default=0.0) ** 0.5)
    return tuple(name for name, ratio in facts.item_tastes.items() if ratio >= least)


def candidates(
    facts: Facts, overrides: Mapping[str, object]
) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """The experiments to try, by name, the most promising first; `overrides` replace their settings.

    Returns:
        The experiments, and the names of those that `overrides` contradict, each with the message.

    Raises:
        ConfigurationError: the overrides contradict every candidate.
    """
    chosen: dict[str, ExperimentConfig] = {}
    refused: dict[str, ConfigurationError] = {}
    for name, (base, settings) in _kinds(facts).items():
        experiment = load_experiment(base, {**_training(facts, load_experiment(base)), **settings})
        try:
            chosen[name] = with_settings(experiment, overrides)
        except ConfigurationError as error:
            refused[name] = error
            continue
        # Pairs of an item with itself are the repeat term's. Given settings that exclude pairs win.
        if facts.items <= MOST_PAIRED and not facts.ranks_repeats:
            with suppress(ConfigurationError):
                chosen[name] = with_settings(experiment, {"tower.scoring.pairs": PAIRS, **overrides})
    if not chosen:
        raise next(iter(refused.values()))
    return chosen, {name: str(error) for name, error in refused.items()}


def _kinds(facts: Facts) -> dict[str, tuple[str, Settings]]:
    """The names of candidates, each with a shipped experiment and the settings that differ from it.

    The first is the favourite: its training time bounds the trials of the others. A log in the order of its
    file may have been sorted by anything, so its favourite is a candidate without order.
    """
    sampled: Settings = {"objective": _SAMPLED} if facts.items > MOST_SCORED else {}
    of_ids = {**sampled, **(_LINEAR_SET if facts.ranks_repeats else {})}
    read, hidden, as_set = sampled, Settings(), of_ids
    if facts.item_features:
        in_batch: Settings = {"objective": _IN_BATCH} if facts.items > MOST_ENCODED else {}
        read, hidden = {"tower.item.features": "all", **in_batch}, {"tower.item.hidden": [128]}
        # A set has the item to predict, which is left out as its features would give it away. Ids beside
        # features are hidden half of the time: where features tell the taste, ids learn noise.
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
            # alone, all three learn noise, and so do categories that say nothing.
            of_categories = {**as_set, "tower.item.features": telling, "tower.item.id_dropout": 0.9}
            unordered["categories"] = ("ids", of_categories)
    kinds = {**unordered, **ordered} if facts.in_file_order else {**ordered, **unordered}
    if facts.item_features or facts.user_features:
        kinds["features"] = ("full_softmax", {**read, **hidden, "tower.user.features": "all"})
    if facts.ranks_repeats:
        # First uses follow single items more than the order of items. Towers without order learn first uses
        # in a fraction of the time, and that time bounds the trials of the others.
        first: dict[str, tuple[str, Settings]] = {"pooled": ("full_softmax", {**sampled, **_LINEAR})}
        if facts.item_features or "set" not in kinds:
            first["ids"] = ("ids", of_ids)
        kinds = {**first, **kinds}
    elif not (facts.item_features or facts.user_features):
        kinds["pooled"] = ("full_softmax", sampled)
    if facts.kinds > 1:
        favourite, (base, settings) = next(iter(kinds.items()))
        kinds[f"{favourite}_without_kinds"] = (base, {**settings, "tower.user.kinds": False})
    if facts.since is not None:
        favourite, (base, settings) = next(iter(kinds.items()))
        of_size = _training(replace(facts, examples=int(RECENT * facts.examples)), load_experiment(base))
        kinds[f"{favourite}{IS_RECENT}"] = (base, {**of_size, **settings, "training.since": facts.since})
    return kinds
