"""Features and order in the data that an experiment does not read, and the shipped ones that do."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from turret.data.manifest import FeatureSummary
from turret.data.prepared import PreparedData
from turret.tower.config import FeatureNames
from turret.training.config.experiment import ExperimentConfig, load_experiment, shipped_experiments
from turret.training.verdict.finding import Finding, listing
from turret.training.verdict.order import ORDERED_RATIO, order_of


def unread_features(
    experiment: ExperimentConfig, data: PreparedData, rejected: Mapping[str, float] | None = None
) -> Finding | None:
    """Features of items and users that the towers leave unread.

    `rejected` has the validation values of the candidates to which `--experiment auto` preferred this one.
    """
    items = _unread(experiment.tower.item.features, data.manifest.item_features)
    users = _unread(experiment.tower.user.features, data.manifest.user_features)
    readers = _shipped(
        lambda other: (
            (not items or other.tower.item.features == "all")
            and (not users or other.tower.user.features == "all")
        )
    )
    if not (items or users) or not readers:
        return None
    parts = [
        f"{kind} have {'the feature' if len(names) == 1 else f'{len(names)} features'} ({listing(names)})"
        for kind, names in (("items", items), ("users", users))
        if names
    ]
    it = "it" if len(items) + len(users) == 1 else "them"
    sentence = f"This experiment leaves features unread: {' and '.join(parts)}; " + (
        _preferred(rejected) if rejected else f"the shipped experiment {listing(readers)} reads {it}."
    )
    figures = {"item_features": items, "user_features": users, "experiments": readers}
    return Finding("unread_features", sentence, figures)


def _preferred(rejected: Mapping[str, float]) -> str:
    values = [f"{name} ({value:.4f})" for name, value in rejected.items()]
    return f"`--experiment auto` preferred it to {listing(values)} by their validation metric in trials."


def _unread(chosen: FeatureNames, features: list[FeatureSummary]) -> list[str]:
    return [] if chosen == "all" else [one.name for one in features if one.name not in chosen]


def unread_order(
    experiment: ExperimentConfig, data: PreparedData, rejected: Mapping[str, float] | None = None
) -> Finding | None:
    """An order of events that predicts the next item, which the user tower reads as a set.

    `rejected` has the validation values of the candidates to which `--experiment auto` preferred this one.
    """
    readers = _shipped(_reads_order)
    if _reads_order(experiment) or data.manifest.time.kind == "position" or not readers:
        return None
    order = order_of(data, repeats=not experiment.evaluation.exclude_seen)
    is_window = experiment.tower.user.context == "causal_window"
    # A window reads its newest item by itself.
    ratio = order.pairs if is_window else order.ratio
    if ratio is None or ratio < ORDERED_RATIO:
        return None
    read = "reads little of that order" if is_window else "does not read that order"
    sentence = (
        f"The order of the events predicts the next item ({order.clause}), and this experiment {read}; "
        + (_preferred(rejected) if rejected else f"the shipped experiments {listing(readers)} read it.")
    )
    return Finding("unread_order", sentence, {**asdict(order), "ratio": ratio, "experiments": readers})


def _reads_order(experiment: ExperimentConfig) -> bool:
    return experiment.tower.user.context == "causal_segment"


def _shipped(reads: Callable[[ExperimentConfig], bool]) -> list[str]:
    return [name for name in shipped_experiments() if reads(load_experiment(name))]
