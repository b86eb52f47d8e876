"""`turret compare`: a comparison of runs as text tables, JSON and a plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turret.data.text import count, figure, signed_with_interval, text_table, with_interval
from turret.training.comparison.compare import compare
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.figures import check_format, save_figure


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


def comparison_table(report: dict[str, Any], metric: str) -> str:
    """A table of the runs by one metric, and one of the settings that differ."""
    parts = [_runs(report, metric)]
    for number, run in enumerate(report["runs"], start=1):
        parts.append(f"{number}: {run['run']}{_seeds(run, metric)}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    if report["slices"]:
        parts.append(_slices(report, metric))
    parts.append(_settings(report) if report["settings"] else "The runs have the same settings.")
    if not report["same_data"]:
        parts.append(
            "The runs were trained on different data: differences are those of data and settings together, "
            "over the users that all evaluations have."
        )
    return "\n".join(parts)


def _seeds(run: dict[str, Any], metric: str) -> str:
    """The number of seeds that a run is the mean of, and their deviation."""
    if run["seeds"] is None:
        return ""
    deviation = run["deviation"][metric]
    spread = "" if deviation is None else f", standard deviation of {metric} {deviation:.4f}"
    return f" (mean of {len(run['seeds'])} seeds{spread})"


def _runs(report: dict[str, Any], metric: str) -> str:
    rows = [
        (
            str(number),
            with_interval(run["metrics"][metric]),
            signed_with_interval(run["difference"][metric]) if run["difference"] else "",
            *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
            f"{run['bytes'] / 1e6:.1f}",
        )
        for number, run in enumerate(report["runs"], start=1)
    ]
    return text_table(
        ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
        rows,
        f"{report['part']} part: {report['users']:,} common users",
        "mean over users [95 % bootstrap interval]; differences are paired by user",
    )


def _slices(report: dict[str, Any], metric: str) -> str:
    rows = []
    for name, group in report["slices"].items():
        if metric not in group["runs"][0]["metrics"]:  # as the AUC of users without negatives
            continue
        cells = [
            figure(run["metrics"][metric])
            + (f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else "")
            for run in group["runs"]
        ]
        rows.append((name, f"{group['users']:,}", *cells))
    return text_table(
        ("slice", "users", *_numbers(report)), rows, f"slices: {metric}, and the difference from 1"
    )


def _settings(report: dict[str, Any]) -> str:
    rows = (
        (name, *("" if value is None else str(value) for value in values))
        for name, values in report["settings"].items()
    )
    return text_table(("setting", *_numbers(report)), rows, "settings that differ")


def _numbers(report: dict[str, Any]) -> list[str]:
    return [str(number + 1) for number in range(len(report["runs"]))]


def plot_comparison(report: dict[str, Any], metric: str, path: Path) -> None:
    """Write the plot of one metric to `path`, in the format of its suffix."""
    runs = report["runs"]
    figure = Figure(figsize=(13.0, 1.8 + 0.45 * len(runs) + 1.0), layout="constrained")
    FigureCanvasAgg(figure)
    means, differences, cost = figure.subplots(1, 3)
    for index, run in enumerate(runs):
        _interval(means, run["metrics"][metric], index)
        if run["difference"] is not None:
            _interval(differences, run["difference"][metric], index)
        if run["seconds"] is not None:
            cost.plot(run["seconds"], run["metrics"][metric]["mean"], "o", color=f"C{index % 10}")
            point = (run["seconds"], run["metrics"][metric]["mean"])
            cost.annotate(str(index + 1), point, xytext=(5, 5), textcoords="offset points")
    differences.axvline(0.0, color="black", linewidth=1, linestyle=":")
    _label(means, [f"{index}: {run['run']}" for index, run in enumerate(runs, start=1)])
    _label(differences, [str(index) for index in range(1, len(runs) + 1)])
    means.set_xlabel(f"{metric} [95 % interval]")
    differences.set_xlabel(f"{metric}: paired difference from 1 [95 % interval]")
    cost.margins(0.15)
    cost.set_xlabel("seconds of training")
    cost.set_ylabel(metric)
    for axes in (means, differences, cost):
        axes.grid(visible=True, alpha=0.3)
    figure.suptitle(f"{report['part']} part, {report['users']:,} common users")
    save_figure(figure, path)


def _interval(axes: Axes, value: dict[str, float], index: int) -> None:
    """A point with its interval, in the row of a run."""
    axes.plot([value["low"], value["high"]], [index, index], color=f"C{index % 10}", linewidth=2)
    axes.plot(value["mean"], index, "o", color=f"C{index % 10}")


def _label(axes: Axes, names: list[str]) -> None:
    """Name the rows from the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
