"""The figures of a page as SVG: curves of trainings, and shares of the catalog."""

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from turret.training.records import load_history
from turret.training.run import Run

COLOURS = ("#0b7f78", "#c2680c", "#6366f1", "#b83280", "#5f8f1e", "#2386c8")
_INK = "#78838e"  # a grey that can be read on light and on dark paper
# A figure needs no more points than its width has pixels; longer lines have no dots.
_MOST_POINTS, _MOST_DOTS = 400, 40
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "turret",  # the same run gives the same page
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), _INK),
}
Points = list[tuple[int, float]]


def training_figures(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, str | None]]:
    """The titles and the figures of trainings, drawn over one another; None for a figure without a point.

    A run of several seeds has one curve a seed. Trainings with another validation metric have another scale,
    and are left out of its figure. A single training has more figures. Raises TrainingError for a history
    that can't be read.
    """
    drawn = [
        (label if number == 0 else "", run, COLOURS[index % len(COLOURS)], load_history(run.folder))
        for index, (label, seeds) in enumerate(runs.items())
        for number, run in enumerate(seeds)
    ]
    # The validation metric is that of the first training: its training.metric, or the slot of new items.
    every = (name for *_, history in drawn[:1] for entry in history for name in entry)
    validation = next((name for name in every if name.startswith("validation/")), "validation/")
    title = f"Validation {validation.removeprefix('validation/')}".rstrip()
    names = {"Training loss, mean of an epoch": "loss/epoch", title: validation}
    if len(drawn) == 1:
        names = {"Training loss of batches": "loss/train", **names}
        names |= {"Learning rate": "learning_rate", "Examples per second": "examples_per_second"}
    figures = []
    for title, name in names.items():
        lines = []
        for label, run, colour, history in drawn:
            points = [(int(entry["step"]), float(entry[name])) for entry in history if name in entry]
            # Points are thinned out evenly, and the last one is kept.
            lines.append((label, run, colour, points[:: -(len(points) // _MOST_POINTS or 1)][::-1]))
        figures.append((title, _lines(lines, name)))
    return figures


def _lines(lines: Sequence[tuple[str, Run, str, Points]], name: str) -> str | None:
    """Curves over the steps of training; validation curves have a ring at the model that was kept."""
    if not any(points for *_, points in lines):
        return None
    figure, axes = _axes(4.6, 2.1)
    for label, run, colour, points in lines:
        marker = "." if len(points) <= _MOST_DOTS else ""
        steps, values = [step for step, _ in points], [value for _, value in points]
        axes.plot(steps, values, color=colour, label=label, marker=marker, linewidth=1.4)
        progress = run.progress()
        if name.startswith("validation/") and progress and progress.best in values:
            kept = steps[values.index(progress.best)]
            axes.axvline(kept, color=colour, linewidth=0.8, linestyle=":")
            axes.plot(kept, progress.best, "o", color=colour, markerfacecolor="none", markersize=7)
            if len(lines) == 1:
                title = f"epoch {progress.best_epoch}: {progress.best:.4f}"
                axes.set_title(title, fontsize=8, loc="right")
    axes.set_xlim(left=0)
    axes.set_xlabel("step", loc="right")
    if len(lines) > 1:
        axes.legend(frameon=False, labelcolor=_INK, fontsize=8)
    return _image(figure)


def share_figure(series: Mapping[str, Sequence[float]]) -> str:
    """Shares of the tenths of the catalog, such as "top 10 %", as bars; the last series is grey."""
    count = len(next(iter(series.values())))
    edges = [round(100 * number / count) for number in range(count + 1)]
    labels = [f"top {high} %" if not low else f"{low} to {high} %" for low, high in pairwise(edges)]
    figure, axes = _axes(9.4, 2.2)
    width = 0.72 / len(series)
    for number, (label, shares) in enumerate(series.items()):
        at = [group + (number - (len(series) - 1) / 2) * width for group in range(len(shares))]
        colour = COLOURS[number] if number < len(series) - 1 else _INK
        axes.bar(at, shares, width * 0.94, label=label, color=colour)
    axes.set_xticks(range(len(labels)), labels)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(frameon=False, labelcolor=_INK, fontsize=8)
    return _image(figure)


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes: Axes = figure.subplots()
    axes.grid(visible=True, color=_INK, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _image(figure: Figure) -> str:
    """The address of an image that holds the figure: its own styles don't meet those of the page."""
    drawn = BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.getvalue()).decode()
