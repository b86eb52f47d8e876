"""The plot of a comparison: metrics, paired differences, and quality against cost."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turret.training.figures import save_figure


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
