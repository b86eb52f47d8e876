"""The reasons of a choice, as sentences with the figures that they are made from."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from turret.data.progress import counted
from turret.training.auto.candidates import (
    MOST_ENCODED,
    MOST_SCORED,
    ORDERED,
    UNORDERED,
    telling_categories,
)
from turret.training.auto.facts import Facts
from turret.training.baselines.registry import BASELINES
from turret.training.config.experiment import ExperimentConfig, TrainingConfig
from turret.training.verdict.finding import Statement, listing
from turret.training.verdict.order import Order
from turret.training.verdict.repeats import MANY

Kind = Literal[
    "order",
    "no_order",
    "unclear_order",
    "features",
    "tastes",
    "no_tastes",
    "repeats",
    "large_catalog",
    "unread_labels",
    "size",
    "refused",
    "left_out",
    "trial",
    "no_trials",
    "picked",
]


@dataclass(frozen=True)
class Reason(Statement):
    """A statement of a choice."""

    kind: Kind


def data_reasons(facts: Facts, experiment: ExperimentConfig, refused: Mapping[str, str]) -> Iterator[Reason]:
    """The reasons that the data alone gives.

    Args:
        facts: the figures of the data.
        experiment: that of the first candidate.
        refused: the candidates that the overrides contradict, with the message.
    """
    yield _order(facts)
    if facts.item_features or facts.user_features:
        yield _features(facts)
    if facts.item_tastes and (facts.order is None or facts.order < ORDERED):
        yield _tastes(facts)
    if facts.repeat_share >= MANY and not experiment.evaluation.exclude_seen:
        yield _repeats(facts)
    if facts.items > (MOST_ENCODED if facts.item_features else MOST_SCORED):
        yield _large_catalog(facts)
    if facts.has_negatives:
        sentence = (
            "The data has labels or given negatives, which these candidates don't read; the shipped "
            "experiment labelled_pairs does."
        )
        yield Reason("unread_labels", sentence, {"experiments": ["labelled_pairs"]})
    yield _size(facts, experiment.training)
    for name, message in refused.items():
        sentence = f"The candidate {name} does not fit the given settings: {message}."
        yield Reason("refused", sentence, {"candidate": name, "message": message})


def _order(facts: Facts) -> Reason:
    if facts.order is None:
        sentence = (
            "Too few pairs of successive items recur to tell whether the order of the events predicts the "
            "next item, so towers with and without order are tried."
        )
        return Reason("unclear_order", sentence, {"ratio": None})
    order = facts.measured_order or Order(facts.order)
    figures = {"ratio": facts.order, **asdict(order)}
    recur = order.clause
    if facts.order >= ORDERED:
        sentence = f"The order of the events predicts the next item ({recur}), so transformers are tried."
        return Reason("order", sentence, figures)
    if facts.order < UNORDERED:
        sentence = (
            f"The order of the events tells nothing of the next item ({recur}), so no transformer is tried, "
            "and one candidate reads histories as sets."
        )
        return Reason("no_order", sentence, figures)
    sentence = (
        f"The order of the events tells little of the next item ({recur}), so towers with and without order "
        "are tried."
    )
    return Reason("unclear_order", sentence, figures)


def _repeats(facts: Facts) -> Reason:
    sentence = (
        f"{facts.repeat_share:.0%} of the events repeat an item of their user, so used items are ranked too "
        "(evaluation.exclude_seen = false)"
    )
    if facts.own_use:
        beaten = listing(
            [f"{BASELINES[name].title} have {value:.4f}" for name, value in facts.own_use.items()]
        )
        sentence += (
            f". {facts.used_before:.0%} of the validation users take an item again, and a model has to beat "
            f"their own items: by validation ndcg@10 {beaten}"
        )
    figures = {"share": facts.repeat_share, "used_before": facts.used_before, "own_use": dict(facts.own_use)}
    return Reason("repeats", f"{sentence}.", {**figures, "exclude_seen": False})


def _features(facts: Facts) -> Reason:
    parts = [
        f"{len(names)} of {kind} ({listing(list(names))})"
        for kind, names in (("items", facts.item_features), ("users", facts.user_features))
        if names
    ]
    sentence = f"The data has features, {' and '.join(parts)}, so a candidate reads them."
    figures = {"item_features": list(facts.item_features), "user_features": list(facts.user_features)}
    return Reason("features", sentence, figures)


def _tastes(facts: Facts) -> Reason:
    ratios = sorted(facts.item_tastes.items(), key=lambda item: -item[1])
    measured = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios)
    shared = f"two items of a user share a value so many times as often as two of the log: {measured}"
    chosen = telling_categories(facts)
    sentence = (
        f"Users choose by {listing(list(chosen))} ({shared}), so a candidate reads little else."
        if chosen
        else f"Users do not choose by the categories of items ({shared}), so no candidate reads these alone."
    )
    return Reason("tastes" if chosen else "no_tastes", sentence, {"ratios": dict(facts.item_tastes)})


def _large_catalog(facts: Facts) -> Reason:
    scored = (
        "a step of the candidates with features scores the items of its batch only"
        if facts.items <= MOST_SCORED
        else "a step scores a sample of the catalog"
    )
    sentence = f"The catalog has {facts.items:,} items, so {scored}, and not all of them."
    return Reason("large_catalog", sentence, {"items": facts.items})


def _size(facts: Facts, training: TrainingConfig) -> Reason:
    sentence = (
        f"The training part has {facts.examples:,} examples, so a batch of the first candidate has "
        f"{training.batch_size:,} of them, and its training ends after {counted(training.epochs, 'epoch')}, "
        f"or {training.patience} without improvement."
    )
    figures = {name: getattr(training, name) for name in ("batch_size", "epochs", "patience")}
    return Reason("size", sentence, {"examples": facts.examples, **figures})
