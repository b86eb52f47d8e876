"""`turret compare`: compare and print."""

import json
from collections.abc import Sequence
from pathlib import Path

from turret.training.comparison.compare import compare
from turret.training.comparison.plot import plot_comparison
from turret.training.comparison.table import comparison_table
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.figures import check_format


def compare_runs(
    folders: Sequence[Path], part: EvaluatedPart, metric: str, as_json: bool, plot: Path | None = None
) -> None:
    """Compare runs with the first of them: print a table by `metric`, or JSON with all metrics, and plot it.

    Raises:
        TrainingError: the runs can't be compared, have no such metric in common, or `plot` has an unknown
            format.
    """
    if plot is not None:
        check_format(plot, "--plot")
    report = compare(folders, part)
    metrics = report["runs"][0]["metrics"]
    if metric not in metrics:
        raise TrainingError(f"--metric {metric}: the runs have {', '.join(metrics)} in common; name one.")
    if plot is not None:
        plot_comparison(report, metric, plot)
    print(json.dumps(report, indent=2) if as_json else comparison_table(report, metric))
