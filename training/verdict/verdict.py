"""The verdict of an evaluation: findings in sentences about the model, its training, and its data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import ceil
from typing import Any

from turret.data.manifest import FeatureSummary
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.config import FeatureNames
from turret.tower.repeats import Slot
from turret.tower.slots import slot_metric
from turret.training.baselines.registry import BASELINES
from turret.training.checkpoint import Progress
from turret.training.config.experiment import (
    ExperimentConfig,
    TrainingConfig,
    load_experiment,
    shipped_experiments,
)
from turret.training.config.metric import AUC
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.metrics import LEAST_USERS, STRANGERS
from turret.training.used_items import leaves_out_all, wants_repeats
from turret.training.verdict.order import ORDERED_RATIO, order_of

# An evaluation that can't tell a difference of a tenth from the best baseline says little.
TELLING = 0.1
# If baselines can't find at least this share of the targets, a finding says so.
MANY_COLD = 0.1
IN_SLOT = {"again": "items that the user had used", "new": "items that are new to the user"}
_OPENINGS = {"better": "Better than", "worse": "Worse than", "unclear": "No clear difference from"}
# The share of events that repeat an item of their user is worth a sentence from MANY on, and below FEW.
MANY, FEW = 0.05, 0.01
# A rise of less than one per cent over the last quarter is no reason to train for longer.
IMPROVING = 0.01

Finding = dict[str, Any]
"""`{kind, sentence, figures}`: the figures are those that the sentence was made from, by name."""


def finding(kind: str, sentence: str, **figures: Any) -> Finding:
    """A finding, JSON-ready."""
    return {"kind": kind, "sentence": sentence, "figures": figures}


def listing(names: Sequence[str]) -> str:
    """Names in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def main_metric(report: dict[str, Any], experiment: ExperimentConfig) -> str:
    """The metric of training if the report has it, else NDCG at the smallest k."""
    metric = experiment.training.metric
    return metric if metric in report[TOWERS] else f"ndcg@{min(experiment.evaluation.k)}"


def verdict(
    report: dict[str, Any],
    experiment: ExperimentConfig,
    data: PreparedData,
    progress: Progress | None,
    choice: dict[str, Any] | None = None,
) -> list[Finding]:
    """The findings about an evaluation report.

    Args:
        report: the report of `Run.evaluate`, with `differences`, `baseline_limits` and `baselines_left_out`.
        experiment: the settings of the run.
        data: the data of the run.
        progress: the progress of its training; None if it is unknown.
        choice: the choice of `--experiment auto`, if it made the settings; its trials decided what to read.
    """
    metric = main_metric(report, experiment)
    compared = told_findings(report, metric)
    is_told = any(entry["kind"] == "baseline" for entry in compared)
    measured: Slot = "new" if wants_repeats(experiment, data) and experiment.training.metric != AUC else "all"
    end = training_end(progress, experiment.training, measured)
    is_tried = choice is not None and bool(choice["trials"])
    findings = [
        *compared,
        strangers(report, metric),
        *left_out_findings(report),
        # A metric that tells nothing gives no reason to train for longer.
        end if end and (is_told or end["kind"] == "unfinished") else None,
        None if is_tried else unread_features(experiment, data),
        None if is_tried else unread_context(experiment, data),
        None if is_tried else unread_order(experiment, data),
        repeats(report, data),
        complements(report),
    ]
    return [entry for entry in findings if entry is not None]


def told_findings(report: dict[str, Any], metric: str) -> list[Finding]:
    """The findings about baselines, of all items and of each slot; the bad news comes first."""
    compared = comparison_findings(report, metric)
    if not any(entry["kind"] == "baseline" for entry in compared):
        return compared
    slots = list(slot_findings(report, metric))
    worse = [entry for entry in (*slots, *compared) if entry["figures"].get("result") == "worse"]
    return [*worse, *(entry for entry in (*compared, *slots) if entry not in worse)]


def comparison_findings(report: dict[str, Any], metric: str) -> list[Finding]:
    """The findings about baselines; instead of them the reason if the evaluation can't tell anything."""
    users = _users(report, metric)
    if users < LEAST_USERS:
        reason = f"an interval over {counted(users, 'user')} says nothing; it needs at least {LEAST_USERS}"
        return _untold(metric, users, reason)
    cold = cold_targets(report)
    if cold and not cold[0]["figures"]["compared"]:
        return cold
    means = {report[name][metric]["mean"] for name in (TOWERS, *report["differences"])}
    if means in ({0.0}, {1.0}):
        same = f"{metric} of all {users:,} users is {means.pop():.0f}, by every ranker"
        return [*cold, *_untold(metric, users, same)]
    return [*cold, *baseline_findings(report, metric), *too_small(report, metric)]


def baseline_findings(report: dict[str, Any], metric: str) -> Iterator[Finding]:
    """One finding per baseline: better, worse, or no clear difference, by the paired 95 % interval."""
    for name, differences in report["differences"].items():
        difference, towers, baseline = differences[metric], report[TOWERS][metric], report[name][metric]
        low, high = difference["low"], difference["high"]
        result = "better" if low > 0 else "worse" if high < 0 else "unclear"
        share = f" ({difference['mean'] / baseline['mean']:+.0%})" if baseline["mean"] else ""
        yield finding(
            "baseline",
            f"{_OPENINGS[result]} {BASELINES[name].title}: {metric} is {towers['mean']:.4f} against "
            f"{baseline['mean']:.4f}, a difference of {difference['mean']:+.4f}{share}, 95 % interval over "
            f"paired users [{low:+.4f}, {high:+.4f}].",
            baseline=name,
            metric=metric,
            result=result,
            towers=towers["mean"],
            baseline_mean=baseline["mean"],
            difference=difference,
        )


def best_baseline_finding(report: dict[str, Any]) -> Finding | None:
    """The finding of a stored report about its best baseline; None where the evaluation could not tell."""
    findings: list[Finding] = [entry for entry in report["verdict"] if entry["kind"] == "baseline"]
    return max(findings, key=lambda entry: float(entry["figures"]["baseline_mean"]), default=None)


def left_out_findings(report: dict[str, Any]) -> Iterator[Finding]:
    """The baselines that could not be fitted, and the limits of those that were."""
    for name, limits in report["baseline_limits"].items():
        sentence = f"The baseline {name} was fitted on {limits} alone, to bound its memory."
        yield finding("baseline_limits", sentence, baseline=name, limits=limits)
    for name, reason in report["baselines_left_out"].items():
        sentence = f"The baseline {name} was left out: {reason}."
        yield finding("baseline_left_out", sentence, baseline=name, reason=reason)


def cold_targets(report: dict[str, Any]) -> list[Finding]:
    """A finding if many targets have no training event; hits on most of them are no merit over baselines."""
    cold, targets = report["relevant_cold"], report["relevant_items"]
    if cold < MANY_COLD * targets or report.get("queries"):  # BM25 finds those of queries by their texts
        return []
    compared = cold < targets / 2
    event = "an event of a target kind" if "consuming_kinds" in report else "an event"
    sentence = (
        f"{cold:,} of {targets:,} targets are items without {event} in the training part, which baselines "
        "never find, and towers by features of items or by chance"
    )
    sentence += "." if compared else "; the two are not compared."
    return [finding("cold_targets", sentence, cold=cold, targets=targets, compared=compared)]


def _untold(metric: str, users: int, reason: str) -> list[Finding]:
    sentence = f"The evaluation can't tell anything: {reason}."
    return [finding("too_small", sentence, metric=metric, users=users)]


def too_small(report: dict[str, Any], metric: str) -> list[Finding]:
    """A finding if half the paired interval to the best baseline exceeds a tenth of the towers' mean."""
    best = max(report["differences"], key=lambda name: report[name][metric]["mean"])
    difference, mean = report["differences"][best][metric], report[TOWERS][metric]["mean"]
    half_width, users = (difference["high"] - difference["low"]) / 2, _users(report, metric)
    if half_width <= TELLING * mean:
        return []
    sentence = (
        f"The evaluation is too small to tell small differences: with {users:,} users the interval of the "
        f"difference from {BASELINES[best].title} is {half_width:.4f} to either side, and {metric} of this "
        f"model {mean:.4f}"
    )
    figures = {"baseline": best, "metric": metric, "users": users, "half_width": half_width}
    if half_width < mean:
        figures["users_needed"] = ceil(users * (half_width / mean / TELLING) ** 2)
        sentence += f"; about {figures['users_needed']:,} users would make it {TELLING:.0%} of that"
    return [finding("too_small", f"{sentence}.", **figures)]


def _users(report: dict[str, Any], metric: str) -> int:
    users: int = report["users_with_negatives" if metric == AUC else "users"]
    return users


def repeats(report: dict[str, Any], data: PreparedData) -> Finding | None:
    """A finding if many repeats are masked, or if hardly any exist and used items are ranked."""
    masked, targets = report["relevant_masked"], report["relevant_items"]
    if data.kinds is not None:
        kinds = report["consuming_kinds"]
        if masked < MANY * targets:
            return None
        sentence = (
            f"{masked:,} of {targets:,} targets can't be hit, as events of the kind{'s' * (len(kinds) > 1)} "
            f"{listing(kinds)} consume their item. If users come back for the same items, prepare with "
            "consume = DAYS for these kinds, or set evaluation.exclude_seen to the kinds that do consume."
        )
        return finding("repeats", sentence, kinds=kinds, targets_masked=masked, targets=targets)
    share, in_visit = data.manifest.repeat_share, data.manifest.visit_repeat_share
    figures = {"share": share, "in_visit": in_visit, "targets_masked": masked}
    if not report["exclude_seen"]:
        sentence = (
            f"Only {share:.1%} of the training events repeat an item of their user, but "
            "evaluation.exclude_seen = false ranks items that were used before; set it to true."
        )
        return finding("repeats", sentence, **figures, exclude_seen=False) if share < FEW else None
    if not masked or max(share, in_visit) < MANY:
        return None
    lost = (
        "and evaluation.exclude_seen = true masks those items: "
        f"{masked:,} of {targets:,} targets can't be hit."
    )
    sentence = (
        f"{share:.0%} of the training events repeat an item of their user, {lost} If users come back for "
        "the same items, set it to false."
        if share >= MANY
        else f"{in_visit:.0%} of the training events repeat an item of the same visit, as a purchase after a "
        f"view does, {lost} Prepare with --duplicates strongest (or last) to keep one event of each user and "
        "item."
    )
    return finding("repeats", sentence, **figures, exclude_seen=True)


def slot_findings(report: dict[str, Any], metric: str) -> Iterator[Finding]:
    """A finding for each half of an answer with enough users: the towers beside the best baseline."""
    for slot, size in report.get("slots", {}).items():
        name = slot_metric(slot, metric)
        if size["users"] < LEAST_USERS or name not in report[TOWERS]:
            continue
        means = {other: report[other][name]["mean"] for other in report["differences"]}
        best = max(reversed(means), key=lambda other: means[other])  # a tie goes to EASE, not to its variant
        difference, towers = report["differences"][best][name], report[TOWERS][name]["mean"]
        low, high = difference["low"], difference["high"]
        result = "better" if low > 0 else "worse" if high < 0 else "unclear"
        opening = {"better": "Better than", "worse": "Below", "unclear": "No clear difference from"}[result]
        yield finding(
            "slot",
            f"{opening} {BASELINES[best].title} for {IN_SLOT[slot]}, {size['share']:.0%} of the targets: "
            f"{metric} among these is {towers:.4f} against {means[best]:.4f}, a difference of "
            f"{difference['mean']:+.4f}, 95 % interval over paired users [{low:+.4f}, {high:+.4f}].",
            slot=slot,
            metric=name,
            result=result,
            **size,
            towers=towers,
            baseline=best,
            baseline_mean=means[best],
            difference=difference,
        )


def strangers(report: dict[str, Any], metric: str) -> Finding | None:
    """A finding on the metric of users without a history, and on that of recent popularity if measured."""
    group = report["slices"].get(STRANGERS, {})
    if report.get("queries") or metric not in group.get(TOWERS, {}):
        return None
    users, mean = group["users"], group[TOWERS][metric]["mean"]
    sentence = (
        f"Users without a history ({users:,}) get the items that are popular in the training part, "
        f"as strangers do in the service: {metric} is {mean:.4f} for them"
    )
    figures = {"users": users, "metric": metric, TOWERS: mean}
    if "recent_popularity" in group:
        figures["recent_popularity"] = recent = group["recent_popularity"][metric]["mean"]
        sentence += f", and by recent popularity {recent:.4f}"
    return finding("strangers", f"{sentence}.", **figures)


def training_end(progress: Progress | None, settings: TrainingConfig, slot: Slot = "all") -> Finding | None:
    """A finding if training is unfinished, or the last epoch was best by a margin, validated in a slot."""
    if progress is None:
        return None
    if not progress.finished:
        sentence = (
            f"Training was interrupted after epoch {progress.epoch} of {settings.epochs}; "
            "`turret train --resume` continues it."
        )
        return finding("unfinished", sentence, epoch=progress.epoch, epochs=settings.epochs)
    evaluations = len(progress.validated)
    if evaluations < 2 or progress.best_epoch < settings.epochs:
        return None
    first, before = progress.validated[evaluations - 1 - max(1, evaluations // 4)]
    last, value = progress.validated[-1]
    if before <= 0 or value / before - 1 < IMPROVING:
        return None
    rise = value / before - 1
    sentence = (
        f"Training was still improving at its end: validation {slot_metric(slot, settings.metric)} rose by "
        f"{rise:.1%} from epoch {first:.0f} ({before:.4f}) to {last:.0f} ({value:.4f}); train again with "
        f"--set training.epochs={2 * settings.epochs}."
    )
    figures = {"from_epoch": first, "from": before, "to_epoch": last, "to": value, "rise": rise}
    return finding("still_improving", sentence, **figures)


def unread_features(experiment: ExperimentConfig, data: PreparedData) -> Finding | None:
    """A finding if the towers leave features of items or users unread."""
    items = _unread(experiment.tower.item.features, data.manifest.item_features)
    users = _unread(experiment.tower.user.features, data.manifest.user_features)
    readers = _shipped(
        lambda other: (
            (not items or other.tower.item.features == "all")
            and (not users or other.tower.user.features == "all")
        ),
        data,
    )
    if not (items or users) or not readers:
        return None
    parts = [f"{kind} have {listing(names)}" for kind, names in (("items", items), ("users", users)) if names]
    sentence = (
        f"This experiment leaves features unread: {' and '.join(parts)}; the shipped experiment "
        f"{listing(readers)} reads them."
    )
    return finding("unread_features", sentence, item_features=items, user_features=users, experiments=readers)


def unread_context(experiment: ExperimentConfig, data: PreparedData) -> Finding | None:
    """A finding if the tower leaves columns of the context unread."""
    names = _unread(experiment.tower.user.context_features, data.manifest.context_features)
    if not names:
        return None
    sentence = (
        f"This experiment leaves the context of events unread: {listing(names)}; train with "
        "--set tower.user.context_features=all to read it."
    )
    return finding("unread_context", sentence, context_features=names)


def _unread(chosen: FeatureNames, features: list[FeatureSummary]) -> list[str]:
    return [] if chosen == "all" else [feature.name for feature in features if feature.name not in chosen]


def unread_order(experiment: ExperimentConfig, data: PreparedData) -> Finding | None:
    """A finding if the order of events predicts the next item, and the user tower does not read it."""
    readers = _shipped(_reads_order, data)
    if _reads_order(experiment) or data.manifest.time.kind == "position" or not readers:
        return None
    order = order_of(data, repeats=not leaves_out_all(data, experiment.evaluation.exclude_seen))
    is_window = experiment.tower.user.context == "causal_window"
    # A window reads its newest item by itself, so that only pairs count.
    ratio = order.pairs if is_window else order.ratio
    if ratio is None or ratio < ORDERED_RATIO:
        return None
    sentence = (
        f"The order of the events predicts the next item ({order.clause}), and this experiment "
        f"{'reads little of that order' if is_window else 'does not read that order'}; the shipped "
        f"experiments {listing(readers)} read it."
    )
    return finding("unread_order", sentence, **{**asdict(order), "ratio": ratio}, experiments=readers)


def _reads_order(experiment: ExperimentConfig) -> bool:
    return experiment.tower.user.context == "causal_segment"


def _shipped(reads: Callable[[ExperimentConfig], bool], data: PreparedData) -> list[str]:
    """The shipped experiments for such data for which `reads` is true."""
    loaded = {name: load_experiment(name) for name in shipped_experiments()}
    return [
        name
        for name, experiment in loaded.items()
        if (experiment.tower.user.context == "none") == data.has_queries
        and (experiment.training.examples == "sessions") == data.holds_baskets
        and reads(experiment)
    ]


def complements(report: dict[str, Any]) -> Finding | None:
    """A finding about baskets: how often the items that go with an item are also similar to it."""
    measured = report.get("similar_in_basket")
    if measured is None:
        return None
    sentence = (
        f"Of the {measured['k']} items most similar to an item, {measured['share']:.0%} are among the "
        f"{measured['k']} that go with it in a basket (mean over {measured['items']:,} items): "
        "substitutes and complements agree so far."
    )
    return finding("complements", sentence, **measured)
