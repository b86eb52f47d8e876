"""The drawings of a page as SVG: curves of trainings, and shares of the catalog."""

import base64
from collections.abc import Sequence
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


@dataclass(frozen=True)
class Curve:
    """Values [P] of one figure by step [P]."""

    steps: list[int]
    values: list[float]


@dataclass(frozen=True)
class Curves:
    """The curves of a run; `best_step` and `best` are of the model that was kept, None if nothing validated.

    `loss` are batches, `epoch_loss` means over an epoch.
    """

    loss: Curve
    epoch_loss: Curve
    validation: Curve
    learning_rate: Curve
    throughput: Curve
    metric: str
    best_step: int | None
    best: float | None
    best_epoch: int


def curves_of(run: Run) -> Curves:
    """Read the curves of a run; they are empty for a run without a history.

    Raises:
        TrainingError: the history can't be read.
    """
    entries, metric = load_history(run.folder), run.experiment.training.metric
    progress = run.progress()
    best_epoch = progress.best_epoch if progress is not None else 0
    validated = f"validation/{metric}"
    best = [entry for entry in entries if validated in entry and entry["epoch"] == best_epoch]
    return Curves(
        loss=_curve(entries, "loss/train"),
        epoch_loss=_curve(entries, "loss/epoch"),
        validation=_curve(entries, validated),
        learning_rate=_curve(entries, "learning_rate"),
        throughput=_curve(entries, "examples_per_second"),
        metric=metric,
        best_step=int(best[-1]["step"]) if best else None,
        best=float(best[-1][validated]) if best else None,
        best_epoch=best_epoch,
    )


def _curve(entries: Sequence[dict[str, Any]], name: str) -> Curve:
    """The measurements of one figure, evenly thinned out to at most `_MOST_POINTS` and the last one."""
    found = [(int(entry["step"]), float(entry[name])) for entry in entries if name in entry]
    every = -(-len(found) // _MOST_POINTS) or 1
    kept = found[::every] + (found[-1:] if found and (len(found) - 1) % every else [])
    return Curve([step for step, _ in kept], [value for _, value in kept])


def run_drawings(curves: Curves) -> list[tuple[str, str | None]]:
    """The titles and the drawings of one training, None for a curve without a point."""
    loss = [("batches", curves.loss, _SOFT), ("mean of an epoch", curves.epoch_loss, COLOURS[0])]
    return [
        ("Training loss", _lines(loss)),
        (
            f"Validation {curves.metric}",
            _lines([("", curves.validation, COLOURS[0])], [(curves, COLOURS[0])]),
        ),
        ("Learning rate", _lines([("", curves.learning_rate, COLOURS[0])])),
        ("Examples per second", _lines([("", curves.throughput, COLOURS[0])])),
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
            _lines([(label, own.epoch_loss, at) for label, own, at in drawn]),
        ),
        (
            f"Validation {metric}",
            _lines(
                [(label, own.validation, at) for label, own, at in validated],
                [(own, at) for _, own, at in validated],
            ),
        ),
    ]


def share_drawing(labels: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Shares in groups as bars beside each other; the last series is grey."""
    figure, axes = _axes(9.4, 2.2)
    width = 0.72 / len(series)
    for number, (label, shares) in enumerate(series):
        at = [group + (number - (len(series) - 1) / 2) * width for group in range(len(shares))]
        colour = COLOURS[number] if number < len(series) - 1 else _OTHER
        axes.bar(at, shares, width * 0.94, label=label, color=colour)
    axes.set_xticks(range(len(labels)), labels)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(frameon=False, labelcolor=_INK, fontsize=8)
    return _image(figure)


def _lines(lines: Sequence[tuple[str, Curve, str]], best: Sequence[tuple[Curves, str]] = ()) -> str | None:
    """Curves over the steps of training, with a ring at the model that was kept."""
    if not any(curve.values for _, curve, _ in lines):
        return None
    figure, axes = _axes(4.6, 2.1)
    for label, curve, colour in lines:
        marker = "." if len(curve.values) <= _MOST_DOTS else ""
        axes.plot(curve.steps, curve.values, color=colour, label=label, marker=marker, linewidth=1.4)
    for own, colour in best:
        if own.best_step is not None and own.best is not None:
            axes.axvline(own.best_step, color=colour, linewidth=0.8, linestyle=":")
            axes.plot(own.best_step, own.best, "o", color=colour, markerfacecolor="none", markersize=7)
    if len(best) == 1 and best[0][0].best is not None:
        axes.set_title(f"epoch {best[0][0].best_epoch}: {best[0][0].best:.4f}", fontsize=8, loc="right")
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
