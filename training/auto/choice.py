"""`--experiment auto`: look at the data, try the candidates beside the baselines, pick one, and say why."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from turret.data.prepared import PreparedData
from turret.data.progress import counted, progress
from turret.tower.slots import slot_metric, with_slots
from turret.training.auto.candidates import (
    IS_RECENT,
    MOST_ENCODED,
    MOST_SCORED,
    ORDERED,
    RECENT,
    UNORDERED,
    Facts,
    candidates,
    facts_of,
    telling_categories,
)
from turret.training.auto.picking import Below, Pick, Tried, pick, serves_new, tied
from turret.training.auto.trials import Report, Trial, run_trials
from turret.training.baselines.registry import (
    ALL,
    BASELINES,
    RECENT_SHARE,
    chosen_baselines,
    newest_part,
)
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import means_of, slot_sets, summarise, validated_items, values_of
from turret.training.evaluation.metrics import LEAST_USERS, Values, difference_interval
from turret.training.verdict.verdict import IN_SLOT, Finding, finding, listing

# A log with more examples has no trials: one epoch takes longer than all trials together should.
MOST_TRIED = 10_000_000
_DAY = 86_400_000  # in milliseconds, the unit of `data.times`

_ORDERS = {
    "order": ("predicts the next item", "transformers are tried"),
    "no_order": (
        "tells nothing of the next item",
        "no transformer is tried, and one candidate reads histories as sets",
    ),
    "unclear_order": ("tells little of the next item", "towers with and without order are tried"),
}
# The kind of the finding that a baseline beats every candidate in a slot.
RULE_AHEAD = "rule_ahead"

Choice = dict[str, Any]
"""`{picked, reasons, trials}`: the name of the picked candidate, findings, and the trials."""


def choose(
    data: PreparedData, values: Mapping[str, object], folder: Path, report: Report
) -> tuple[ExperimentConfig, Choice]:
    """Pick an experiment for `data`; `values` override its settings, and `report` receives each reason.

    Where there were trials, the training of the picked candidate has begun in its subfolder of `folder`.
    """
    reasons: list[Finding] = []
    trials: list[Trial] = []

    def add(reason: Finding) -> None:
        reasons.append(reason)
        report(f"auto: {reason['sentence']}")

    def without_trials(picked: str, hindrance: str) -> Choice:
        add(finding("no_trials", f"Picked: {picked}, without trials, as {hindrance}.", picked=picked))
        return {"picked": picked, "reasons": reasons, "trials": trials}

    if data.has_queries:
        return load_experiment("questions", values), without_trials("questions", "the data holds queries")
    facts = facts_of(data)
    experiments, refused = candidates(facts, values)
    first = next(iter(experiments))
    metric = experiments[first].training.metric
    for reason in data_reasons(facts, experiments[first], refused):
        add(reason)
    if (hindrance := obstacle(facts, len(experiments))) is not None:
        return experiments[first], without_trials(first, hindrance)
    rules = rule_values(data, experiments[first])
    if (recency := recency_reason(rules, data, metric)) is not None:
        add(recency)
        names = ["half_life", *["since"] * ("training.since" not in values)]
        facts = replace(facts, **{name: recency["figures"][name] for name in names})
        experiments, _ = candidates(facts, values)
    tried: dict[str, Tried] = {}
    for trial, user_values in run_trials(experiments, data, folder, report):
        trials.append(trial)
        add(trial_reason(trial, metric))
        if user_values and not trial["stopped"]:
            name = trial["candidate"]
            tried[name] = Tried(user_values, serves_new(experiments[name]), trial["estimated"])
    left_out = [trial["candidate"] for trial in trials if not trial["values"]]
    left = [name for name in experiments if name not in left_out]
    if len(left) == 1:
        return experiments[left[0]], without_trials(left[0], "it alone is left")
    if not tried:
        raise TrainingError(f"{data.folder}: --experiment auto: every trial failed: {trials[0]['failure']}")
    picked = pick(tried, rules, metric)
    means = {name: means_of(trained.values) for name, trained in tried.items()}
    for reason in (*window_reasons(tried, facts.since, metric), *pick_reasons(picked, means, metric)):
        add(reason)
    return experiments[picked.name], {"picked": picked.name, "reasons": reasons, "trials": trials}


def recency_reason(
    rules: Mapping[str, Mapping[str, Values]], data: PreparedData, metric: str
) -> Finding | None:
    """The finding that sets a half-life, if recent popularity ranks better than that of the whole part."""
    if "recent_popularity" not in rules:
        return None
    recent, whole = rules["recent_popularity"], rules["popularity"]
    name = slot_metric("new", metric)
    name = name if name in recent else metric
    _, first, last = newest_part(data, RECENT_SHARE)
    difference, days = recent[name] - whole[name], (last - first) / _DAY
    if np.count_nonzero(~np.isnan(difference)) < LEAST_USERS or not days:
        return None
    summary = summarise({name: difference}, difference_interval)[name]
    if summary["low"] <= 0:
        return None
    values = {"recent": means_of(recent)[name], "whole": means_of(whole)[name]}
    half_life = float(f"{days:.3g}")
    since = f"{(last - newest_part(data, RECENT)[1]) / _DAY:.3g}d"
    sentence = (
        f"Popular items change: the newest tenth of the training part ranks by a validation {name} of "
        f"{values['recent']:.4f}, the whole by {values['whole']:.4f}, so targets weigh half as much every "
        f"{half_life:g} days (training.half_life)."
    )
    return finding("recency", sentence, half_life=half_life, since=since, metric=name, **values)


def window_reasons(tried: Mapping[str, Tried], since: str | None, metric: str) -> Iterator[Finding]:
    """The finding whether events older than `since` helped, if candidates with and without them are left."""
    for recent in [name for name in tried if name.endswith(IS_RECENT)]:
        whole = recent.removesuffix(IS_RECENT)
        if whole in tried:
            values = {name: tried[name].values for name in (whole, recent)}
            figures = {name: means_of(of_users)[metric] for name, of_users in values.items()}
            helped = recent not in tied(values, whole, metric)
            sentence = (
                f"Events older than {since} {'helped' if helped else 'did not help'}: {whole}, which also "
                f"predicts them, has a validation {metric} of {figures[whole]:.4f}, {recent} "
                f"{figures[recent]:.4f}."
            )
            yield finding("window", sentence, since=since, helped=helped, values=figures)


def rule_values(data: PreparedData, experiment: ExperimentConfig) -> dict[str, dict[str, Values]]:
    """The `values_of` each baseline for the validation users, without matrix factorisation, which is slow."""
    training, evaluation = experiment.training, experiment.evaluation
    sets = slot_sets(data, validated_items(data, training), "validation", evaluation)
    values: dict[str, dict[str, Values]] = {}
    for rule in chosen_baselines([ALL], data, evaluation.exclude_seen)[0]:
        if rule.name != "als" and not rule.is_live:
            with progress(f"preparing {rule.name}"):
                scores_of = rule.fit(data, "validation")
            values[rule.name] = values_of(scores_of, data, sets, training.metric, evaluation)
            del scores_of  # before the next rule is fitted
    return values


def pick_reasons(picked: Pick, means: Mapping[str, Mapping[str, float]], metric: str) -> Iterator[Finding]:
    """The findings about a choice, from the means of the tried candidates, with the bad news first."""
    for slot in picked.ahead:
        best = max(
            (each for each in picked.below if each.metric == slot), key=lambda each: each.candidate_mean
        )
        sentence = (
            f"In the trials every candidate is below {BASELINES[best.rule].title}{_in_slot(slot)}: "
            f"{best.candidate}, the best of them, has {_against(best)}."
        )
        yield finding(RULE_AHEAD, sentence, **best._asdict())
    for below in picked.below:
        if below.metric not in picked.ahead:
            is_out = below.candidate in picked.out
            sentence = (
                f"{below.candidate} is {'not chosen, as it is ' * is_out}below {BASELINES[below.rule].title}"
                f"{_in_slot(below.metric)}: it has {_against(below)}."
            )
            yield finding("below", sentence, **below._asdict(), out=is_out)
    texts = {name: with_slots(values, metric) for name, values in means.items()}
    tie = f"is not clearly below that of {picked.best}"
    why = {
        "best": f"is the best{' of those left' * bool(picked.out)}",
        "serves_new": f"{tie}, and its features serve items that are added later",
        "cheaper": f"{tie}, and its training is cheaper",
        "earlier": f"{tie}, and it is the earlier candidate",
    }
    others = "".join(f"; {name} has {figure}" for name, figure in texts.items() if name != picked.name)
    sentence = (
        f"Picked: {picked.name}, whose validation {metric} of {texts[picked.name]} {why[picked.by]}{others}."
    )
    figures = {"picked": picked.name, "best": picked.best, "by": picked.by, "metric": metric, "values": means}
    yield finding("picked", sentence, **figures)


def _in_slot(metric: str) -> str:
    """The clause about the items that a metric ranks, after a space; empty for all items."""
    return "".join(f" for {items}" for slot, items in IN_SLOT.items() if metric.startswith(f"{slot} "))


def _against(below: Below) -> str:
    return (
        f"a validation {below.metric} of {below.candidate_mean:.4f} against {below.rule_mean:.4f}, 95 % "
        f"interval of the difference over paired users [{below.low:+.4f}, {below.high:+.4f}]"
    )


def data_reasons(facts: Facts, experiment: ExperimentConfig, refused: Mapping[str, str]) -> Iterator[Finding]:
    """The reasons that the data alone gives.

    Args:
        facts: the figures of the data.
        experiment: the experiment of the first candidate.
        refused: the candidates that the overrides contradict, each with the message.
    """
    order, ratio = facts.order, facts.order.ratio
    known = ratio if ratio is not None else (UNORDERED + ORDERED) / 2
    kind = "order" if known >= ORDERED else "no_order" if known < UNORDERED else "unclear_order"
    statement, consequence = _ORDERS[kind]
    sentence = (
        "Too few pairs of successive items recur to tell whether their order predicts the next one"
        if ratio is None
        else f"The order of the events {statement} ({order.clause})"
    )
    yield finding(kind, f"{sentence}, so {consequence}.", ratio=ratio, **asdict(order))
    named = {"items": list(facts.item_features), "users": list(facts.user_features)}
    if facts.item_features or facts.user_features:
        parts = [f"{len(names)} of {kind} ({listing(names)})" for kind, names in named.items() if names]
        sentence = f"The data has features, {' and '.join(parts)}, so a candidate reads them."
        yield finding("features", sentence, **named)
    if facts.context_features:
        sentence = f"Events have a context ({listing(facts.context_features)}), so all candidates read it."
        yield finding("context", sentence, context_features=list(facts.context_features))
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


def trial_reason(trial: Trial, metric: str) -> Finding:
    """The finding about one trial."""
    if not trial["values"]:
        return finding("left_out", f"{trial['candidate']} is left out: {trial['failure']}.", **trial)
    sentence = (
        f"After {trial['epochs']} of {counted(trial['planned'], 'epoch')} ({trial['seconds']:.0f} s), "
        f"{trial['candidate']} has reached a validation {metric} of {with_slots(trial['values'], metric)}, "
        f"at epoch {trial['epoch']}{', and ends there, in the worse half' * trial['stopped']}."
    )
    return finding("trial", sentence, **trial)
