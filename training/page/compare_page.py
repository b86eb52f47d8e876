"""`turret report compare`: the page about several runs on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.comparison.compare import SEED, Candidate, compare
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import (
    TOWERS,
    EvaluatedPart,
    relevant_items,
    summarise,
    user_groups,
)
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.per_user import mean_per_user
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
from turret.training.run import PER_USER, REPORT_PAGE

COMPARED = Path("var") / REPORT_PAGE


def report_compare(
    folders: Sequence[Path], data: Path | None, part: EvaluatedPart, k: int | None, output: Path | None
) -> Path:
    """Write the page about several runs to `output` (var/report.html) and print its path.

    Raises:
        TrainingError: the runs can't be compared or evaluated, have no metrics at `k` in common, or `output`
            can't be written.
    """
    path = output or COMPARED
    check_output(path)
    write_page(path, compare_page(compared(folders, data, part), k))
    print(path)
    return path


@dataclass(frozen=True)
class SliceComparison:
    """A slice, its users, and for each run a metric and its difference to the first run, as summaries."""

    name: str
    users: int
    metrics: list[dict[str, float] | None]
    differences: list[dict[str, float] | None]


@dataclass(frozen=True)
class Compared:
    """Candidates, the first of which is the reference, and the report of `compare` about them."""

    candidates: list[Candidate]
    data: PreparedData
    report: dict[str, Any]

    def slices(self, metric: str) -> list[SliceComparison]:
        """One metric of all candidates in each slice of users, with paired differences to the first."""
        part: EvaluatedPart = self.report["part"]
        relevant = relevant_items(self.data, part)
        values = [self._values(candidate, part, metric) for candidate in self.candidates]
        if any(len(own) != len(relevant.users) for own in values):
            raise TrainingError(
                "The runs were evaluated on other users of this data; evaluate them all again."
            )
        replicates = self.candidates[0].runs[0].experiment.evaluation.bootstrap
        found = []
        for name, members in user_groups(self.data, part, relevant).items():
            own = [summarise({metric: value[members]}, replicates, SEED).get(metric) for value in values]
            pairs = [
                summarise({metric: (value - values[0])[members]}, replicates, SEED).get(metric)
                for value in values[1:]
            ]
            found.append(SliceComparison(name, int(members.sum()), own, [None, *pairs]))
        return found

    def _values(self, candidate: Candidate, part: EvaluatedPart, metric: str) -> Values:
        _, values = mean_per_user([run.folder / PER_USER[part] for run in candidate.runs], TOWERS)
        return values[metric]


def compared(folders: Sequence[Path], data: Path | None, part: EvaluatedPart) -> Compared:
    """Compare runs on the same data; those without an evaluation of their model are evaluated.

    Raises:
        TrainingError: there are fewer than two runs, they have different data, or one has no model yet.
    """
    if len(folders) < 2:
        raise TrainingError("a comparison needs at least two runs: turret report compare RUN RUN.")
    candidates = [Candidate.open(folder) for folder in folders]
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
    return Compared(candidates, prepared, compare(folders, part))


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
    return render(
        "compare.html.j2",
        title=f"Comparison of {len(labels)} runs",
        lead=lead(found.data),
        report=report,
        runs=list(zip(labels, report["runs"], strict=True)),
        metric=metric,
        k=k,
        metrics=metric_titles(metrics_at_k(metrics, k), [run["metrics"] for run in report["runs"]]),
        drawings=compared_drawings(curves),
        slices=found.slices(metric),
    )


def _names(found: Compared) -> list[str]:
    """The folders of the runs, as short as they differ."""
    folders = [candidate.folder for candidate in found.candidates]
    names = [folder.name or str(folder) for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]
