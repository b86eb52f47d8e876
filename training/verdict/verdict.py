"""All findings about one evaluation."""

from typing import Any

from turret.data.prepared import PreparedData
from turret.training.checkpoint import Progress
from turret.training.config.experiment import ExperimentConfig
from turret.training.verdict.comparison import comparison_findings, left_out_findings
from turret.training.verdict.repeats import repeat_targets, repeats
from turret.training.verdict.training_end import training_end
from turret.training.verdict.unread import unread_features, unread_order


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
    rejected = _rejected(choice)
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
    return [finding.as_json() for finding in findings if finding is not None]


def _rejected(choice: dict[str, Any] | None) -> dict[str, float]:
    """The candidates that `--experiment auto` tried and did not pick, with their values in the trials."""
    if choice is None:
        return {}
    tried = {trial["candidate"]: trial["value"] for trial in choice["trials"] if trial["value"] is not None}
    return {name: value for name, value in tried.items() if name != choice["picked"]}


def main_metric(report: dict[str, Any], experiment: ExperimentConfig) -> str:
    """The metric of training if the report has it, else NDCG at the smallest k."""
    metric = experiment.training.metric
    return metric if metric in report["towers"] else f"ndcg@{min(experiment.evaluation.k)}"
