"""`turret report compare`: the page about several runs on the same data."""

from collections.abc import Sequence
from pathlib import Path

from turret.training.comparison.compare import compare, open_candidates
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart, relevant_items, user_groups
from turret.training.page.drawings import compared_drawings, curves_of
from turret.training.page.render import check_output, render, write_page
from turret.training.page.run_page import (
    cut_off,
    evaluated_report,
    lead,
    main_metric_at,
    metric_titles,
    metrics_at_k,
)
from turret.training.run import REPORT_PAGE

COMPARED = Path("var") / REPORT_PAGE


def report_compare(
    folders: Sequence[Path], data: Path | None, part: EvaluatedPart, k: int | None, output: Path | None
) -> None:
    """Write the page about several runs to `output` (var/report.html) and print its path.

    Raises:
        TrainingError: the runs can't be compared or evaluated, have no metrics at `k` in common, or `output`
            can't be written.
    """
    path = output or COMPARED
    check_output(path)
    write_page(path, compare_page(folders, data, part, k))
    print(path)


def compare_page(
    folders: Sequence[Path], data: Path | None, part: EvaluatedPart, k: int | None = None
) -> str:
    """The HTML page about several runs; those without an evaluation of their model are evaluated.

    Args:
        folders: those of at least two runs; the first one is the reference of all differences.
        data: that of the runs, if it was moved.
        part: the part with the targets.
        k: the cut-off of the metrics; None for that of the first run's metric of training.

    Raises:
        TrainingError: there are fewer than two runs, they have different data, one has no model yet, or they
            have no metrics at `k` in common.
    """
    candidates = open_candidates(folders)
    first = candidates[0].runs[0]
    for candidate in candidates[1:]:
        if candidate.runs[0].fingerprint != first.fingerprint:
            raise TrainingError(
                f"{folders[0]} and {candidate.folder} were trained on different data (another fingerprint); "
                "name runs on the same data. `turret compare` compares these over their common users."
            )
    prepared = first.open_data(data)
    for candidate in candidates:
        for run in candidate.runs:
            evaluated_report(run, run.open_data(prepared.folder), part)
    report = compare(folders, part, user_groups(prepared, part, relevant_items(prepared, part)))

    metrics, main = list(report["runs"][0]["metrics"]), first.experiment.training.metric
    k = cut_off(metrics, main, k)
    names = [folder.name or str(folder) for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    labels = [f"{number}: {name}" for number, name in enumerate(names, start=1)]
    curves = [[curves_of(run) for run in candidate.runs] for candidate in candidates]
    return render(
        "compare.html.j2",
        title=f"Comparison of {len(labels)} runs",
        lead=lead(prepared),
        report=report,
        runs=list(zip(labels, report["runs"], strict=True)),
        metric=main_metric_at(metrics, main, k),
        k=k,
        metrics=metric_titles(metrics_at_k(metrics, k), [run["metrics"] for run in report["runs"]]),
        drawings=compared_drawings(list(zip(labels, curves, strict=True))),
    )
