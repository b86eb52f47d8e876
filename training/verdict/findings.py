"""Findings of an evaluation in sentences: the towers against each baseline, and what can't be told apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from turret.data.progress import counted
from turret.training.baselines.registry import BASELINES
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.metrics import AUC

# An evaluation that can't tell a tenth more from the best baseline says little.
TELLING = 0.1
# Resamples of fewer users are too much alike for an interval.
FEWEST_USERS = 10
# A share of targets that baselines can't find from which on it is told.
MANY_COLD = 0.1


@dataclass(frozen=True)
class Finding:
    """A sentence, its kind, and the figures that it was made from, by name."""

    kind: str
    sentence: str
    figures: dict[str, Any]


def listing(names: Sequence[str]) -> str:
    """Names in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def comparison_findings(report: dict[str, Any], metric: str) -> list[Finding]:
    """The findings about baselines; instead of them the reason if the evaluation can't tell anything."""
    users = _users(report, metric)
    if users < FEWEST_USERS:
        reason = f"an interval over {counted(users, 'user')} says nothing; it needs at least {FEWEST_USERS}"
        return [_untold(metric, users, reason)]
    cold = cold_targets(report)
    if cold is not None and not cold.figures["compared"]:
        return [cold]
    means = {report[name][metric]["mean"] for name in (TOWERS, *report["differences"])}
    if means in ({0.0}, {1.0}):
        reason = f"{metric} of all {users:,} users is {means.pop():.0f}, by every ranker"
        found: list[Finding | None] = [cold, _untold(metric, users, reason)]
    else:
        found = [cold, *baseline_findings(report, metric), too_small(report, metric)]
    return [finding for finding in found if finding is not None]


def baseline_findings(report: dict[str, Any], metric: str) -> Iterator[Finding]:
    """One finding a baseline: better, worse, or no clear difference, by the paired 95 % interval."""
    for name, differences in report["differences"].items():
        difference, towers, baseline = differences[metric], report["towers"][metric], report[name][metric]
        low, high = difference["low"], difference["high"]
        result = "better" if low > 0 else "worse" if high < 0 else "unclear"
        title = BASELINES[name].title
        opening = {
            "better": f"Better than {title}",
            "worse": f"Worse than {title}",
            "unclear": f"No clear difference from {title}",
        }[result]
        share = f" ({difference['mean'] / baseline['mean']:+.0%})" if baseline["mean"] else ""
        sentence = (
            f"{opening}: {metric} is {towers['mean']:.4f} against {baseline['mean']:.4f}, a difference of "
            f"{difference['mean']:+.4f}{share}, 95 % interval over paired users [{low:+.4f}, {high:+.4f}]."
        )
        figures = {"baseline": name, "metric": metric, "result": result}
        figures |= {"towers": towers["mean"], "baseline_mean": baseline["mean"]}
        yield Finding("baseline", sentence, {**figures, "difference": difference})


def best_baseline_finding(report: dict[str, Any]) -> dict[str, Any] | None:
    """The finding of a stored report about its best baseline; None where the evaluation could not tell."""
    found = [finding for finding in report["verdict"] if finding["kind"] == "baseline"]
    return max(found, key=lambda finding: float(finding["figures"]["baseline_mean"]), default=None)


def left_out_findings(report: dict[str, Any]) -> Iterator[Finding]:
    """The baselines that could not be fitted, and the limits of those that were."""
    for name, limits in report["baseline_limits"].items():
        sentence = f"The baseline {name} was fitted on {limits} alone, to bound its memory."
        yield Finding("baseline_limits", sentence, {"baseline": name, "limits": limits})
    for name, reason in report["baselines_left_out"].items():
        sentence = f"The baseline {name} was left out: {reason}."
        yield Finding("baseline_left_out", sentence, {"baseline": name, "reason": reason})


def cold_targets(report: dict[str, Any]) -> Finding | None:
    """Many targets without a training event; hits on most of them are no merit over baselines."""
    cold, targets = report["relevant_cold"], report["relevant_items"]
    if cold < MANY_COLD * targets or report.get("queries"):  # which BM25 finds by their texts, too
        return None
    compared = cold < targets / 2
    end = "" if compared else "; the two are not compared"
    event = "an event of a target kind" if "consuming_kinds" in report else "an event"
    sentence = (
        f"{cold:,} of {targets:,} targets are items without {event} in the training part, which baselines "
        f"never find, and towers by features of items or by chance{end}."
    )
    return Finding("cold_targets", sentence, {"cold": cold, "targets": targets, "compared": compared})


def _untold(metric: str, users: int, reason: str) -> Finding:
    sentence = f"The evaluation can't tell anything: {reason}."
    return Finding("too_small", sentence, {"metric": metric, "users": users})


def too_small(report: dict[str, Any], metric: str) -> Finding | None:
    """Whether the paired interval to the best baseline is wider than a tenth of the towers' mean."""
    best = max(report["differences"], key=lambda name: report[name][metric]["mean"])
    difference, mean = report["differences"][best][metric], report[TOWERS][metric]["mean"]
    half_width, users = (difference["high"] - difference["low"]) / 2, _users(report, metric)
    if half_width <= TELLING * mean:
        return None
    sentence = (
        f"The evaluation is too small to tell small differences: with {users:,} users the interval of the "
        f"difference from {BASELINES[best].title} is {half_width:.4f} to either side, and {metric} of this "
        f"model {mean:.4f}"
    )
    figures = {"baseline": best, "metric": metric, "users": users, "half_width": half_width}
    if half_width < mean:
        figures["users_needed"] = ceil(users * (half_width / mean / TELLING) ** 2)
        sentence += f"; about {figures['users_needed']:,} users would make it {TELLING:.0%} of that"
    return Finding("too_small", f"{sentence}.", figures)


def _users(report: dict[str, Any], metric: str) -> int:
    users: int = report["users_with_negatives" if metric == AUC else "users"]
    return users
