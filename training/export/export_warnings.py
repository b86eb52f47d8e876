"""Reasons to doubt a model that is exported."""

from collections.abc import Iterator
from typing import Any

from turret.training.run import Run
from turret.training.verdict.verdict import main_metric


def export_warnings(run: Run) -> Iterator[str]:
    """Yield a sentence for each: it was not evaluated, it is worse than popularity, a warm start is no gain.

    The figures are those of the test part if it was evaluated, else of the validation part.
    """
    reports = run.metrics()
    report = reports.get("test") or reports.get("validation")
    if report is None:
        yield f"This model was never evaluated; `turret evaluate {run.folder}` compares it with baselines."
    elif warning := _lost(report, main_metric(report, run.experiment)):
        yield warning
    progress = run.progress()
    if run.origin and progress and progress.best is not None and progress.best_epoch == 0:
        yield (
            f"This warm start improved nothing: no epoch was better on the validation part than the bundle "
            f"{run.origin.name}, whose weights these are."
        )


def _lost(report: dict[str, Any], metric: str) -> str | None:
    """Whether the towers are worse than popularity, by the paired interval."""
    difference = report.get("differences", {}).get("popularity", {}).get(metric)
    if difference is None or difference["high"] >= 0:  # reports of earlier releases have no differences
        return None
    towers, popularity = report["towers"][metric]["mean"], report["popularity"][metric]["mean"]
    return (
        f"This model is worse than popularity on the {report['part']} part: {metric} is {towers:.4f} against "
        f"{popularity:.4f}, 95 % interval of the difference [{difference['low']:+.4f}, "
        f"{difference['high']:+.4f}]."
    )
