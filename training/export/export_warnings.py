"""Reasons to doubt a model that is exported."""

from collections.abc import Iterator

from turret.training.run import Run
from turret.training.verdict.comparison import best_baseline_finding


def export_warnings(run: Run) -> Iterator[str]:
    """Yield a sentence for each: it was not evaluated, a baseline is better, a warm start is no gain.

    The figures are those of the test part if it was evaluated, else of the validation part.
    """
    reports = run.metrics()
    report = reports.get("test") or reports.get("validation")
    if report is None:
        yield f"This model was never evaluated; `turret evaluate {run.folder}` compares it with baselines."
    elif (best := best_baseline_finding(report)) and best["figures"]["result"] == "worse":
        yield f"On the {report['part']} part a baseline beats this model. {best['sentence']}"
    progress = run.progress()
    if run.origin and progress and progress.best is not None and progress.best_epoch == 0:
        yield (
            f"This warm start improved nothing: no epoch was better on the validation part than the bundle "
            f"{run.origin.name}, whose weights these are."
        )
