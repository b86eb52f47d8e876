"""`turret compare`: a comparison of runs as text tables, JSON and a plot."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    """A table of the runs by one metric, their baselines, slices, and the settings that differ."""
    runs = report["runs"]
    numbers = [str(number) for number in range(1, len(runs) + 1)]
    parts = [
        text_table(
            ("run", metric, "difference from 1", "epochs", "seconds", "parameters", "MB"),
            [
                (
                    number,
                    with_interval(run["metrics"][metric]),
                    signed_with_interval(run["difference"][metric]) if run["difference"] else "",
                    *(count(run[name]) for name in ("epochs", "seconds", "parameters")),
                    f"{run['bytes'] / 1e6:.1f}",
                )
                for number, run in zip(numbers, runs, strict=True)
            ],
            f"{report['part']} part: {report['users']:,} common users",
            "mean over users [95 % bootstrap interval]; differences are paired by user",
        )
    ]
    for number, run in zip(numbers, runs, strict=True):
        parts.append(f"{number}: {run['run']}{_seeds(run, metric)}")
        if run["baseline"]:
            parts.append(f"   {run['baseline']['sentence']}")
    if report["slices"]:
        slices = [
            (name, f"{group['users']:,}", *(_with_difference(run, metric) for run in group["runs"]))
            for name, group in report["slices"].items()
            if metric in group["runs"][0]["metrics"]  # unlike the AUC of users without negatives
        ]
        title = f"slices: {metric}, and the difference from 1"
        parts.append(text_table(("slice", "users", *numbers), slices, title))
    if report["settings"]:
        settings = [
            (name, *("" if value is None else str(value) for value in values))
            for name, values in report["settings"].items()
        ]
        parts.append(text_table(("setting", *numbers), settings, "settings that differ"))
    else:
        parts.append("The runs have the same settings.")
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


def _with_difference(run: dict[str, Any], metric: str) -> str:
    gain = f", {signed_with_interval(run['difference'][metric])}" if run["difference"] else ""
    return figure(run["metrics"][metric]) + gain


def plot_comparison(report: dict[str, Any], metric: str, path: Path) -> None:
    """Write the plot of one metric to `path`, in the format of its suffix."""
    runs = report["runs"]
    figure = Figure(figsize=(13.0, 1.8 + 0.45 * len(runs) + 1.0), layout="constrained")
    FigureCanvasAgg(figure)
    means, differences, cost = figure.subplots(1, 3)
    for index, run in enumerate(runs):
        colour, mean = f"C{index % 10}", run["metrics"][metric]["mean"]
        for axes, name in ((means, "metrics"), (differences, "difference")):
            if run[name] is not None:
                value = run[name][metric]
                axes.plot([value["low"], value["high"]], [index, index], color=colour, linewidth=2)
                axes.plot(value["mean"], index, "o", color=colour)
        if run["seconds"] is not None:
            cost.plot(run["seconds"], mean, "o", color=colour)
            label = str(index + 1)
            cost.annotate(label, (run["seconds"], mean), xytext=(5, 5), textcoords="offset points")
    differences.axvline(0.0, color="black", linewidth=1, linestyle=":")
    names = [f"{number}: {run['run']}" for number, run in enumerate(runs, start=1)]
    means.set_yticks(range(len(runs)), names)
    differences.set_yticks(range(len(runs)), [name.partition(":")[0] for name in names])
    means.set_xlabel(f"{metric} [95 % interval]")
    differences.set_xlabel(f"{metric}: paired difference from 1 [95 % interval]")
    for axes in (means, differences):
        axes.set_ylim(len(runs) - 0.5, -0.5)  # from the top
    cost.margins(0.15)
    cost.set_xlabel("seconds of training")
    cost.set_ylabel(metric)
    for axes in (means, differences, cost):
        axes.grid(visible=True, alpha=0.3)
    figure.suptitle(f"{report['part']} part, {report['users']:,} common users")
    save_figure(figure, path)
