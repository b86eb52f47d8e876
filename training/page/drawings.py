"""The drawings of a page as SVG: curves of trainings, and shares of the catalog."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from turret.training.records.history import load_history
from turret.training.run import Run

COLOURS = ("#0b7f78", "#c2680c", "#6366f1", "#b83280", "#5f8f1e", "#2386c8")
# Greys that can be read on light and on dark paper.
_INK, _SOFT, _OTHER = "#78838e", "#78838e55", "#9aa4ae"
# A drawing needs no more points than its width has pixels.
_MOST_POINTS = 400
# Longer lines have no dots.
_MOST_DOTS = 40
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "turret",  # the same run gives the same page
    "font.size": 8,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Curves:
    """The curves of a run as steps and values, by the name of the figure in its history.

    `best` is the point of the model that was kept, at the end of `best_epoch`; None if nothing validated.
    """

    points: Mapping[str, Points]
    metric: str
    best: tuple[int, float] | None
    best_epoch: int

    def of(self, name: str) -> Points:
        """A curve, evenly thinned out to at most `_MOST_POINTS` and the last one; empty if it is unknown."""
        found = self.points.get(name, ())
        every = -(-len(found) // _MOST_POINTS) or 1
        return [*found[::every], *(found[-1:] if found and (len(found) - 1) % every else ())]

    @property
    def validation(self) -> str:
        """The name of the validation metric in the history."""
        return f"validation/{self.metric}"


def curves_of(run: Run) -> Curves:
    """Read the curves of a run; there are none for a run without a history.

    Raises:
        TrainingError: the history can't be read.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    metric, progress = run.experiment.training.metric, run.progress()
    best_epoch = progress.best_epoch if progress is not None else 0
    best = None
    for entry in load_history(run.folder):
        for name, value in entry.items():
            points.setdefault(name, []).append((int(entry["step"]), float(value)))
        if f"validation/{metric}" in entry and entry["epoch"] == best_epoch:
            best = points[f"validation/{metric}"][-1]
    return Curves(points, metric, best, best_epoch)


def run_drawings(curves: Curves) -> list[tuple[str, str | None]]:
    """The titles and the drawings of one training, None for a curve without a point."""
    colour = COLOURS[0]
    losses = [
        ("batches", curves.of("loss/train"), _SOFT),
        ("mean of an epoch", curves.of("loss/epoch"), colour),
    ]
    return [
        ("Training loss", _lines(losses)),
        (
            f"Validation {curves.metric}",
            _lines([("", curves.of(curves.validation), colour)], [(curves, colour)]),
        ),
        ("Learning rate", _lines([("", curves.of("learning_rate"), colour)])),
        ("Examples per second", _lines([("", curves.of("examples_per_second"), colour)])),
    ]


def compared_drawings(runs: Sequence[tuple[str, Sequence[Curves]]]) -> list[tuple[str, str | None]]:
    """The curves of several runs over one another; a run of several seeds has one curve a seed."""
    drawn = [
        (label if number == 0 else "", own, COLOURS[index % len(COLOURS)])
        for index, (label, curves) in enumerate(runs)
        for number, own in enumerate(curves)
    ]
    metric = drawn[0][1].metric  # others have another scale
    validated = [one for one in drawn if one[1].metric == metric]
    return [
        (
            "Training loss, mean of an epoch",
            _lines([(label, own.of("loss/epoch"), at) for label, own, at in drawn]),
        ),
        (
            f"Validation {metric}",
            _lines(
                [(label, own.of(own.validation), at) for label, own, at in validated],
                [(own, at) for _, own, at in validated],
            ),
        ),
    ]


def share_drawing(labels: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Shares in groups as bars beside each other; the last series is grey."""
    figure, axes = _axes(9.4, 2.2)
    width = 0.72 / len(series)
    for number, (label, shares) in enumerate(series.items()):
        at = [group + (number - (len(series) - 1) / 2) * width for group in range(len(shares))]
        colour = COLOURS[number] if number < len(series) - 1 else _OTHER
        axes.bar(at, shares, width * 0.94, label=label, color=colour)
    axes.set_xticks(range(len(labels)), labels)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(frameon=False, labelcolor=_INK, fontsize=8)
    return _image(figure)


def _lines(lines: Sequence[tuple[str, Points, str]], best: Sequence[tuple[Curves, str]] = ()) -> str | None:
    """Curves over the steps of training, with a ring at the model that was kept."""
    if not any(points for _, points, _ in lines):
        return None
    figure, axes = _axes(4.6, 2.1)
    for label, points, colour in lines:
        marker = "." if len(points) <= _MOST_DOTS else ""
        steps, values = [step for step, _ in points], [value for _, value in points]
        axes.plot(steps, values, color=colour, label=label, marker=marker, linewidth=1.4)
    for own, colour in best:
        if own.best is not None:
            axes.axvline(own.best[0], color=colour, linewidth=0.8, linestyle=":")
            axes.plot(*own.best, "o", color=colour, markerfacecolor="none", markersize=7)
    if len(best) == 1 and (kept := best[0][0]).best is not None:
        axes.set_title(f"epoch {kept.best_epoch}: {kept.best[1]:.4f}", fontsize=8, loc="right")
    axes.set_xlim(left=0)
    axes.set_xlabel("step", loc="right")
    if sum(bool(label) for label, *_ in lines) > 1:
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
    """The address of an image that holds the drawing: its own styles don't meet those of the page."""
    drawn = BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.getvalue()).decode()
