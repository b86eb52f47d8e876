"""Reasons to doubt a model that is exported."""

from collections.abc import Iterator

from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.training.run import Run
from turret.training.verdict.findings import best_baseline_finding


def export_warnings(run: Run, data: PreparedData) -> Iterator[str]:
    """Yield a sentence for each: it was not evaluated, a baseline is better, a warm start is no gain.

    Another says whether items without an event are in the bundle. The figures are those of the test part if
    it was evaluated, else of the validation part.
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
    if count := len(data.cold_items().ids):
        if run.map_model(data).item.rows is None:
            yield (
                f"{counted(count, 'item')} without an event are not in the bundle, as the item tower reads "
                "no features."
            )
        else:
            yield f"{counted(count, 'item')} without an event are in the bundle, ranked by their features."
