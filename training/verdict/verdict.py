"""The verdict of an evaluation: all findings about it."""

from dataclasses import asdict
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import BASELINES
from turret.training.checkpoint import Progress
from turret.training.config.experiment import ExperimentConfig, TrainingConfig
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.metrics import NEW, USED
from turret.training.verdict.findings import Finding, comparison_findings, left_out_findings, listing
from turret.training.verdict.order import unread_features, unread_order

# Shares of events that repeat an item of their user: worth a sentence from MANY on, and below FEW.
MANY, FEW = 0.05, 0.01
# A rise of less than one per cent over the last quarter is no reason to train for longer.
IMPROVING = 0.01


def verdict(
    report: dict[str, Any],
    experiment: ExperimentConfig,
    data: PreparedData,
    progress: Progress | None,
    choice: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The findings `{kind, sentence, figures}` about an evaluation report, JSON-ready.

    Args:
        report: of `Run.evaluate`, with `differences`, `baseline_limits` and `baseline_left_out`.
        experiment: the settings of the run.
        data: the data of the run.
        progress: the progress of its training; None if it is unknown.
        choice: the choice of `--experiment auto`, if it made the settings.
    """
    metric = main_metric(report, experiment)
    trials = [] if choice is None else choice["trials"]
    rejected = {
        trial["candidate"]: trial["value"]
        for trial in trials
        if trial["value"] is not None and trial["candidate"] != (choice or {})["picked"]
    }
    compared = comparison_findings(report, metric)
    is_told = any(finding.kind == "baseline" for finding in compared)
    end = training_end(progress, experiment.training)
    findings = [
        *compared,
        repeat_targets(report, metric) if is_told else None,
        *left_out_findings(report),
        # A metric that tells nothing gives no reason to train for longer.
        end if end is not None and (is_told or end.kind == "unfinished") else None,
        unread_features(experiment, data, rejected),
        unread_order(experiment, data, rejected),
        repeats(report, data),
    ]
    return [asdict(finding) for finding in findings if finding is not None]


def main_metric(report: dict[str, Any], experiment: ExperimentConfig) -> str:
    """The metric of training if the report has it, else NDCG at the smallest k."""
    metric = experiment.training.metric
    return metric if metric in report["towers"] else f"ndcg@{min(experiment.evaluation.k)}"


def repeats(report: dict[str, Any], data: PreparedData) -> Finding | None:
    """Many repeats that are masked, or hardly any and no mask."""
    if data.kinds is not None:
        return _consumed(report)
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


def _consumed(report: dict[str, Any]) -> Finding | None:
    """Many targets of items that kinds consume."""
    masked, targets, kinds = (report[n] for n in ("relevant_masked", "relevant_items", "consuming_kinds"))
    if masked < MANY * targets:
        return None
    sentence = (
        f"{masked:,} of {targets:,} targets can't be hit, as events of the kind{'s' * (len(kinds) > 1)} "
        f"{listing(kinds)} consume their item. If users come back for the same items, prepare with "
        "consume = DAYS for these kinds, or set evaluation.exclude_seen to the kinds that do consume."
    )
    return Finding("repeats", sentence, {"kinds": kinds, "targets_masked": masked, "targets": targets})


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


def training_end(progress: Progress | None, settings: TrainingConfig) -> Finding | None:
    """An unfinished training, or one whose last epoch was the best by a margin."""
    if progress is None:
        return None
    if not progress.finished:
        sentence = (
            f"Training was interrupted after epoch {progress.epoch} of {settings.epochs}; "
            "`turret train --resume` continues it."
        )
        return Finding("unfinished", sentence, {"epoch": progress.epoch, "epochs": settings.epochs})
    if len(progress.validated) < 2 or progress.best_epoch < settings.epochs:
        return None
    evaluations = len(progress.validated)
    first, before = progress.validated[evaluations - 1 - max(1, evaluations // 4)]
    last, value = progress.validated[-1]
    if before <= 0 or value / before - 1 < IMPROVING:
        return None
    rise = value / before - 1
    sentence = (
        f"Training was still improving at its end: validation {settings.metric} rose by {rise:.1%} from "
        f"epoch {first:.0f} ({before:.4f}) to {last:.0f} ({value:.4f}); train again with "
        f"--set training.epochs={2 * settings.epochs}."
    )
    figures = {"from_epoch": first, "from": before, "to_epoch": last, "to": value, "rise": rise}
    return Finding("still_improving", sentence, figures)
