"""Repeated events against the setting that masks them, and how well they are told apart from new items."""

from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import BASELINES
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.slices import NEW, USED
from turret.training.verdict.finding import Finding

MANY, FEW = 0.05, 0.01


def repeats(report: dict[str, Any], data: PreparedData) -> Finding | None:
    """Many repeats that are masked, or hardly any and no mask."""
    share, in_visit = data.manifest.repeat_share, data.manifest.visit_repeat_share
    masked = report["exclude_seen"]
    figures = {"share": share, "exclude_seen": masked, "targets_masked": report["relevant_used_before"]}
    if masked and not report["relevant_used_before"]:
        return None
    if masked and share >= MANY:
        sentence = (
            f"{share:.0%} of the events repeat an item of their user, and evaluation.exclude_seen = true "
            f"masks those items: {report['relevant_used_before']:,} of {report['relevant_items']:,} targets "
            "can't be hit. If users come back for the same items, set it to false."
        )
        return Finding("repeats", sentence, figures)
    if masked and in_visit >= MANY:
        sentence = (
            f"{in_visit:.0%} of the events repeat an item of the same visit, as a purchase after a view "
            f"does, and evaluation.exclude_seen = true masks those items: "
            f"{report['relevant_used_before']:,} of {report['relevant_items']:,} targets can't be hit. "
            "Prepare with --duplicates strongest (or last) to keep one event of each user and item."
        )
        return Finding("repeats", sentence, {**figures, "in_visit": in_visit})
    if not masked and share < FEW:
        sentence = (
            f"Only {share:.1%} of the events repeat an item of their user, but evaluation.exclude_seen = "
            "false ranks items that were used before; set it to true."
        )
        return Finding("repeats", sentence, figures)
    return None


def repeat_targets(report: dict[str, Any], metric: str) -> Finding | None:
    """The towers and the best baseline, for users who take an item again and for those who take a new one."""
    slices = report["slices"]
    groups = [slices[name] for name in (USED, NEW) if name in slices and metric in slices[name][TOWERS]]
    if report["exclude_seen"] or len(groups) < 2:
        return None
    parts, figures = [], {}
    for group, words in ((USED, "had used before"), (NEW, "had not used")):
        means = {name: value[metric]["mean"] for name, value in slices[group].items() if name != "users"}
        towers = means.pop(TOWERS)
        best = max(means, key=lambda name: means[name])
        users = slices[group]["users"]
        parts.append(
            f"{towers:.4f} for {users:,} users whose next item they {words} ({BASELINES[best].title} "
            f"{means[best]:.4f})"
        )
        figures[group] = {"users": users, TOWERS: towers, "baseline": best, "baseline_mean": means[best]}
    return Finding("repeat_targets", f"{metric} is {' and '.join(parts)}.", {"metric": metric, **figures})
