"""`--experiment auto`: look at the data, try the candidates, pick one, and say why.

Each trial is the same share of its candidate's own training, with the whole schedule of the learning rate: at
the same number of epochs or seconds, towers that learn slowly and end higher would lose.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

import torch

from turret.data.errors import ConfigurationError
from turret.data.files import scratch_folder
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.errors import TowerError
from turret.training.auto.candidates import (
    MOST_ENCODED,
    MOST_SCORED,
    ORDERED,
    UNORDERED,
    Facts,
    candidates,
    facts_of,
    telling_categories,
)
from turret.training.config.experiment import ExperimentConfig, load_experiment, with_settings
from turret.training.errors import DivergenceError, TrainingError
from turret.training.run import Run
from turret.training.trainer import Trainer, train
from turret.training.verdict.verdict import Finding, finding, listing

# A larger log has no trials: an epoch of it is longer than all of them should be.
MOST_TRIED = 10_000_000
# The most of its epochs that a candidate has in a trial.
SHARE = 0.5
# A candidate is left out if its training takes so many times as long as that of the first, and so many
# seconds: a busy machine can make any short step long.
TIMES, SECONDS = 3.0, 60.0
TIMED_STEPS = 10

_ORDERS = {
    "order": ("predicts the next item", "transformers are tried"),
    "no_order": (
        "tells nothing of the next item",
        "no transformer is tried, and one candidate reads histories as sets",
    ),
    "unclear_order": ("tells little of the next item", "towers with and without order are tried"),
}
_FAILURES = (ConfigurationError, DivergenceError, TrainingError, TowerError, torch.OutOfMemoryError)

Choice = dict[str, Any]
"""`{picked, reasons, trials}`: the name of the picked candidate, findings, and the trials."""
Trial = dict[str, Any]
"""The `candidate`, its best validation `value` (None without a trial, for the `failure`) and the `epoch` of
it, the `epochs` of the trial, those `planned` by the experiment, and the `seconds`."""


def choose(
    data: PreparedData, values: Mapping[str, object], report: Callable[[str], None]
) -> tuple[ExperimentConfig, Choice]:
    """Pick an experiment for `data`; settings in `values` win over its own, `report` takes each reason."""
    reasons: list[Finding] = []
    trials: list[Trial] = []

    def add(reason: Finding) -> None:
        reasons.append(reason)
        report(f"auto: {reason['sentence']}")

    def pick(picked: str, hindrance: str) -> Choice:
        add(finding("no_trials", f"Picked: {picked}, without trials, as {hindrance}.", picked=picked))
        return {"picked": picked, "reasons": reasons, "trials": trials}

    if data.has_queries:
        return load_experiment("questions", values), pick("questions", "the data holds queries")
    facts = facts_of(data)
    experiments, refused = candidates(facts, values)
    first = next(iter(experiments))
    metric = experiments[first].training.metric
    for reason in data_reasons(facts, experiments[first], refused):
        add(reason)
    if (hindrance := obstacle(facts, len(experiments))) is not None:
        return experiments[first], pick(first, hindrance)
    for trial in run_trials(experiments, data):
        trials.append(trial)
        add(trial_reason(trial, metric))
    left_out = [trial["candidate"] for trial in trials if trial["value"] is None]
    left = [name for name in experiments if name not in left_out]
    if len(left) == 1:
        return experiments[left[0]], pick(left[0], "it alone is left")
    best = _best(trials, data)
    reached = {trial["candidate"]: trial["value"] for trial in trials if trial["value"] is not None}
    others = [f"{name} has {value:.4f}" for name, value in reached.items() if name != best["candidate"]]
    sentence = f"Picked: {best['candidate']}, whose validation {metric} is the best, {best['value']:.4f}"
    sentence += f"{'; ' if others else ''}{', '.join(others)}."
    add(finding("picked", sentence, picked=best["candidate"], metric=metric, values=reached))
    choice = {"picked": best["candidate"], "reasons": reasons, "trials": trials}
    return experiments[best["candidate"]], choice


def _best(trials: Sequence[Trial], data: PreparedData) -> Trial:
    """The trial with the best value; the earlier one of equals."""
    valued = [trial for trial in trials if trial["value"] is not None]
    if not valued:
        raise TrainingError(f"{data.folder}: --experiment auto: every trial failed: {trials[0]['failure']}")
    return max(valued, key=lambda trial: float(trial["value"]))


def data_reasons(facts: Facts, experiment: ExperimentConfig, refused: Mapping[str, str]) -> Iterator[Finding]:
    """The reasons that the data alone gives.

    Args:
        facts: the figures of the data.
        experiment: that of the first candidate.
        refused: the candidates that the overrides contradict, with the message.
    """
    order, ratio = facts.order, facts.order.ratio
    known = ratio if ratio is not None else (UNORDERED + ORDERED) / 2
    kind = "order" if known >= ORDERED else "no_order" if known < UNORDERED else "unclear_order"
    told, so = _ORDERS[kind]
    sentence = (
        "Too few pairs of successive items recur to tell whether their order predicts the next one"
        if ratio is None
        else f"The order of the events {told} ({order.clause})"
    )
    yield finding(kind, f"{sentence}, so {so}.", ratio=ratio, **asdict(order))
    named = {"items": list(facts.item_features), "users": list(facts.user_features)}
    if facts.item_features or facts.user_features:
        parts = [f"{len(names)} of {kind} ({listing(names)})" for kind, names in named.items() if names]
        sentence = f"The data has features, {' and '.join(parts)}, so a candidate reads them."
        yield finding("features", sentence, **named)
    if facts.item_tastes and known < ORDERED:
        yield _taste_reason(facts)
    if facts.ranks_repeats and not experiment.evaluation.exclude_seen:
        sentence = (
            "Used items are ranked too, but for those of kinds that consume."
            if facts.kinds
            else f"{facts.repeat_share:.0%} of the training events repeat an item of their user, so used "
            "items are ranked too (evaluation.exclude_seen = false)."
        )
        yield finding("repeats", sentence, share=facts.repeat_share, exclude_seen=False)
    if facts.items > (MOST_ENCODED if facts.item_features else MOST_SCORED):
        scored = "a sample of the catalog" if facts.items > MOST_SCORED else "the items of its batch"
        sentence = f"The catalog has {facts.items:,} items, so a step scores {scored} and not all of them."
        yield finding("large_catalog", sentence, items=facts.items)
    if facts.has_negatives:
        sentence = (
            "The data has labels or given negatives, which these candidates don't read; the shipped "
            "experiment labelled_pairs does."
        )
        yield finding("unread_labels", sentence, experiments=["labelled_pairs"])
    training = experiment.training
    sentence = (
        f"The training part has {facts.examples:,} examples, so a batch of the first candidate has "
        f"{training.batch_size:,} of them, and its training ends after {counted(training.epochs, 'epoch')}, "
        f"or {training.patience} without improvement."
    )
    figures = {name: getattr(training, name) for name in ("batch_size", "epochs", "patience")}
    yield finding("size", sentence, examples=facts.examples, **figures)
    for name, message in refused.items():
        sentence = f"The candidate {name} does not fit the given settings: {message}."
        yield finding("refused", sentence, candidate=name, message=message)


def _taste_reason(facts: Facts) -> Finding:
    ratios = sorted(facts.item_tastes.items(), key=lambda item: -item[1])
    measured = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios)
    shared = f"two items of a user share a value so many times as often as two of the log: {measured}"
    chosen = telling_categories(facts)
    sentence = (
        f"Users choose by {listing(chosen)} ({shared}), so a candidate reads little else."
        if chosen
        else f"Users do not choose by categories of items ({shared}), so no candidate reads these alone."
    )
    return finding("tastes" if chosen else "no_tastes", sentence, ratios=dict(facts.item_tastes))


def obstacle(facts: Facts, count: int) -> str | None:
    """The reason, as a clause, why there are no trials of `count` candidates; None if there are."""
    if count < 2:
        return "there is one candidate"
    if not facts.has_validation:
        return "the data has no validation part"
    if facts.examples > MOST_TRIED:
        return f"an epoch has more than {MOST_TRIED:,} examples"
    return None


def run_trials(candidates: Mapping[str, ExperimentConfig], data: PreparedData) -> Iterator[Trial]:
    """Train each candidate for a share of its epochs, and yield its result.

    All trials together take about as long as the training of the first candidate, which is the favourite:
    some steps of each tell how long the whole trainings take. The shortest trial is one epoch. A candidate
    that is left alone has none.
    """
    seconds: dict[str, float] = {}
    for name, experiment in candidates.items():
        try:
            seconds[name] = _seconds(experiment, data)
        except _FAILURES as error:
            yield _left_out(name, experiment, error)
    first = next(iter(seconds), "")
    for name in [name for name in seconds if seconds[name] > max(SECONDS, TIMES * seconds[first])]:
        times = seconds.pop(name) / seconds[first]
        reason = f"its training would take {times:.0f} times as long as that of {first}"
        yield _left_out(name, candidates[name], reason)
    if len(seconds) < 2:
        return
    share = min(SHARE, seconds[first] / sum(seconds.values()))
    for name in seconds:
        yield _trial(name, candidates[name], data, share)


def _seconds(experiment: ExperimentConfig, data: PreparedData) -> float:
    """Estimate the time of a whole training, without its evaluations."""
    with scratch_folder() as folder:
        run = Run(folder, experiment, data.folder, data.fingerprint)
        trainer = Trainer(run, data, report=lambda _: None)
        return trainer.seconds_an_epoch(TIMED_STEPS) * experiment.training.epochs


def _trial(name: str, experiment: ExperimentConfig, data: PreparedData, share: float) -> Trial:
    """Train for a share of the epochs."""
    planned, began = experiment.training.epochs, monotonic()
    epochs = max(1, round(share * planned))
    shortened = with_settings(experiment, {"training.epochs": epochs})
    with scratch_folder() as folder:
        run = Run(folder, shortened, data.folder, data.fingerprint)
        try:
            progress = train(run, data, report=lambda _: None)
        except _FAILURES as error:
            return _left_out(name, experiment, error)
    reached = {"value": progress.best, "epoch": progress.best_epoch, "epochs": epochs, "planned": planned}
    return {"candidate": name, **reached, "seconds": monotonic() - began, "failure": ""}


def _left_out(name: str, experiment: ExperimentConfig, reason: object) -> Trial:
    nothing = {"value": None, "epoch": 0, "epochs": 0, "planned": experiment.training.epochs, "seconds": 0.0}
    return {"candidate": name, **nothing, "failure": " ".join(str(reason).split())}


def trial_reason(trial: Trial, metric: str) -> Finding:
    """The sentence of one trial."""
    if trial["value"] is None:
        return finding("left_out", f"{trial['candidate']} is left out: {trial['failure']}.", **trial)
    sentence = (
        f"In a trial of {trial['epochs']} of {counted(trial['planned'], 'epoch')} ({trial['seconds']:.0f} "
        f"s), {trial['candidate']} reaches a validation {metric} of {trial['value']:.4f}, at epoch "
        f"{trial['epoch']}."
    )
    return finding("trial", sentence, **trial)
