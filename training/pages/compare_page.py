"""The page about several runs on the same data."""

from pathlib import Path

from turret.training.inspection.compared import Compared
from turret.training.inspection.curves import curves_of
from turret.training.inspection.evaluations import cut_off
from turret.training.markup.document import Section, page
from turret.training.markup.elements import element
from turret.training.pages.compare_tables import (
    cost_table,
    metrics_of_runs,
    settings_table,
    summary_of_runs,
)
from turret.training.pages.curve_charts import compared_charts
from turret.training.pages.shown import main_metric_at
from turret.training.pages.slice_tables import compared_slices
from turret.training.pages.summary import lead


def compare_page(found: Compared, k: int | None = None) -> str:
    """The HTML page about several runs; the first one is the reference of all differences.

    Args:
        found: the comparison of at least two runs.
        k: the cut-off of the metrics; None for that of the first run's metric of training.

    Raises:
        TrainingError: the runs have no metrics at `k` in common.
    """
    report = found.report
    metrics = list(report["runs"][0]["metrics"])
    main = found.candidates[0].runs[0].experiment.training.metric
    k = cut_off(metrics, main, k)
    metric = main_metric_at(metrics, main, k)
    labels = [f"{number}: {name}" for number, name in enumerate(_names(found), start=1)]
    curves = [
        (label, [curves_of(run) for run in candidate.runs])
        for label, candidate in zip(labels, found.candidates, strict=True)
    ]
    sections = [
        Section("summary", "Summary", summary_of_runs(report, labels, metric)),
        Section("metrics", "All metrics", metrics_of_runs(report, labels, k)),
        Section("training", "Training", compared_charts(curves)),
        Section("slices", "Slices", compared_slices(found.slices(metric), metric)),
        Section("cost", "Cost and size", cost_table(report, labels)),
        Section("configuration", "Settings that differ", settings_table(report)),
    ]
    title = f"Comparison of {len(labels)} runs"
    heading = [element("h1", title), element("p", lead(found.data, found.data.fingerprint))]
    return page(title, heading, sections)


def _names(found: Compared) -> list[str]:
    """The folders of the runs, as short as they differ."""
    folders = [candidate.folder for candidate in found.candidates]
    names = [folder.name or str(folder) for folder in folders]
    return names if len(set(names)) == len(names) else [str(Path(folder)) for folder in folders]
