"""The plot of a sampler report: bias against cost and against the number of candidates."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turret.training.figures import save_figure

_MARKERS = "osD^v<>Pp*hX"
# Lower limit of the logarithmic axis.
_LEAST_BIAS = 1e-4


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Write the plot to `path`, in the format of its suffix."""
    figure = Figure(figsize=(13.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in report["samplers"]:
        lines[row["sampler"]].append(row)
    for number, (name, rows) in enumerate(lines.items()):
        _draw(left, right, name, rows, number)
    _finish(left, right, report)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    save_figure(figure, path)


def _draw(left: Axes, right: Axes, name: str, rows: list[dict[str, Any]], number: int) -> None:
    style: dict[str, Any] = {
        "color": f"C{number % 10}",
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": "-" if number < 10 else "--",
        "markersize": 5,
        "label": name,
    }
    biases = [_drawn_bias(row) for row in rows]
    left.plot([row["milliseconds"] for row in rows], biases, **style)
    right.plot([row["candidates"] for row in rows], biases, **style)
    # A bias within its error of zero is a hollow marker at its upper bound.
    unsure = [row for row in rows if row["bias_low"] <= 0.0]
    hollow = {**style, "linestyle": "none", "markerfacecolor": "white", "label": None}
    left.plot([row["milliseconds"] for row in unsure], [_drawn_bias(row) for row in unsure], **hollow)
    right.plot([row["candidates"] for row in unsure], [_drawn_bias(row) for row in unsure], **hollow)


def _drawn_bias(row: dict[str, Any]) -> float:
    return max(_LEAST_BIAS, float(row["bias"] if row["bias_low"] > 0.0 else row["bias_high"]))


def _finish(left: Axes, right: Axes, report: dict[str, Any]) -> None:
    left.axvline(report["full_softmax"]["milliseconds"], color="black", linewidth=1, linestyle=":")
    left.set_xlabel("ms a step (dotted: the full softmax, which has no bias)")
    right.set_xlabel("candidates K")
    left.set_ylabel("relative bias of the gradient (hollow: at most)")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(visible=True, which="major", alpha=0.3)
    left.set_title(f"bias against cost, {report['items']:,} items, batches of {report['batch_size']:,}")
    right.set_title("bias against the number of candidates")
