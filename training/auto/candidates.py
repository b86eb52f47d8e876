"""The experiments that fit the figures of prepared data, with settings by the size of the log."""

from collections.abc import Mapping

from turret.data.errors import ConfigurationError
from turret.training.auto.facts import Facts
from turret.training.config.experiment import ExperimentConfig, load_experiment, with_settings
from turret.training.verdict.order import ORDERED_RATIO

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
    ordered: dict[str, tuple[str, Settings]] = {}
    ratio = facts.order.ratio
    if ratio is None or ratio >= UNORDERED:
        names = ["transformer", "transformer_short"]
        for name in reversed(names) if facts.examples < SMALL_LOG else names:
            ordered[name] = (name, _objective(facts))
    unordered: dict[str, tuple[str, Settings]] = {}
    if ratio is None or ratio < ORDERED or facts.in_file_order:
        unordered["set"] = ("ids", _set(facts))
        if telling_categories(facts):
            unordered["categories"] = ("ids", _categories(facts))
    kinds = {**unordered, **ordered} if facts.in_file_order else {**ordered, **unordered}
    if facts.item_features or facts.user_features:
        hidden: Settings = {"tower.item.hidden": [128]} if facts.item_features else {}
        kinds["features"] = ("full_softmax", {**_features(facts), **hidden, "tower.user.features": "all"})
    else:
        kinds["pooled"] = ("full_softmax", _objective(facts))
    if facts.kinds > 1:
        favourite, (base, own) = next(iter(kinds.items()))
        kinds[f"{favourite}_without_kinds"] = (base, {**own, "tower.user.kinds": False})
    return kinds


def _objective(facts: Facts) -> Settings:
    return {"objective": _SAMPLED} if facts.items > MOST_SCORED else {}


def _features(facts: Facts) -> Settings:
    if not facts.item_features:
        return _objective(facts)
    return {"tower.item.features": "all", **({"objective": _IN_BATCH} if facts.items > MOST_ENCODED else {})}


def _set(facts: Facts) -> Settings:
    """A history without order. Features need `leave_out`: they would tell the item to predict by itself.

    Ids beside features are hidden half of the time: where features tell the taste, ids learn noise.
    """
    own: Settings = {"tower.user.leave_out": True, "tower.item.id_dropout": 0.5}
    return {**_features(facts), **(own if facts.item_features else {})}


def _categories(facts: Facts) -> Settings:
    """A history without order, of the categories that users choose by and little else.

    Texts and numbers tell items apart as ids do. Where users choose within categories by popularity alone,
    both learn noise, and so do categories that say nothing.
    """
    own: Settings = {"tower.item.features": list(telling_categories(facts)), "tower.item.id_dropout": 0.9}
    return {**_set(facts), **own}
