"""A sampler report as a plot and as text: tables of the best samplers, notes, and a recommendation."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy import linspace

from turret.data.text import paragraph, text_table

Row = dict[str, Any]
# With the full softmax the table has ten rows.
_BEST = 9
# Above this bias the optimum of training moves visibly.
_MOST_BIAS = 0.05
# A sampler has to save a tenth of a step, which is more than the noise of the times.
_SAVING = 0.9
_MARKERS = "osD^v<>Pp*hX"
# The logarithmic axis begins here.
_LEAST_BIAS = 1e-4


def report_table(report: dict[str, Any], show_all: bool = False) -> str:
    """Tables of samplers and of losses over in-batch candidates, notes, and a recommendation.

    The first table has the best samplers by bias and cost, or all of them.
    """
    rows = report["samplers"] if show_all else best_rows(report["samplers"], _BEST)
    left_out = len(report["samplers"]) - len(rows)
    full = ("full softmax", "", "", "", "0", "0", f"{report['full_softmax']['milliseconds']:,.1f}")
    shown = [
        (
            row["sampler"],
            f"{round(row['candidates']):,}",
            "∞" if row["kl"] is None else f"{row['kl']:.3f}",
            f"{row['effective_share']:.1%}",
            _shown_bias(row),
            f"{row['variance']:.3g}",
            f"{row['milliseconds']:,.1f}",
        )
        for row in rows
    ]
    tables = [
        text_table(
            ("sampler", "K", "KL", "ESS", "bias", "variance", "ms a step"),
            [*shown, full],
            f"sampled softmax on {report['queries']} queries, {report['items']:,} items",
            f"the best by bias and cost; --all shows {left_out} more" if left_out else None,
        ),
        text_table(
            ("loss", "batch", "bias", "variance"),
            [
                (row["loss"], f"{row['batch_size']:,}", _shown_bias(row), f"{row['variance']:.3g}")
                for row in report["in_batch_losses"]
            ],
            "losses over in-batch candidates",
        ),
    ]
    return "\n".join([*tables, *map(paragraph, [*_notes(report), recommendation(report)])])


def known_bias(row: Row) -> float:
    """The bias, or its upper bound where it is within its error of zero."""
    return float(row["bias"] if row["bias_low"] > 0.0 else row["bias_high"])


def _shown_bias(row: Row) -> str:
    return f"{'' if row['bias_low'] > 0.0 else '< '}{known_bias(row):.1%}"


def _notes(report: dict[str, Any]) -> Iterator[str]:
    yield (
        f"Figures of up to {report['draws']} draws, and of steps of {report['batch_size']:,} examples "
        "without the optimiser; < is an upper bound where zero is within the error (docs/estimators.md)."
    )
    if report["queries"] < report["queries_asked"]:
        yield (
            f"{report['queries']} queries instead of {report['queries_asked']}: the data has no more "
            f"examples, or their scores of {report['items']:,} items would not fit into memory."
        )
    timed = {row["timed_examples"] for row in [*report["samplers"], report["full_softmax"]]}
    if min(timed) < max(timed):
        yield (
            f"Samplers that score all items in each step were timed on {min(timed):,} examples and scaled "
            "up, and drawn fewer times."
        )
    for skipped in report["skipped"]:
        sizes = f" with K = {skipped['negatives']}" if skipped["negatives"] else ""
        yield f"Not measured: {skipped['sampler']}{sizes}: {skipped['reason']}"


def best_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """At most `count` of the efficient rows, cheapest first: no cheaper one has as little bias.

    If there are more, the cheapest, the least biased and others evenly between are taken.
    """
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["milliseconds"], known_bias(row))):
        if not front or known_bias(row) < known_bias(front[-1]):
            front.append(row)
    return front if len(front) <= count else [front[int(at)] for at in linspace(0, len(front) - 1, count)]


def recommendation(report: dict[str, Any]) -> str:
    """One sentence: the cheapest sampler whose bias is small, or the full softmax."""
    full = report["full_softmax"]["milliseconds"]
    cheaper = [row for row in report["samplers"] if row["milliseconds"] <= _SAVING * full]
    if not cheaper:
        return (
            f"Recommendation: full_softmax, {full:,.1f} ms a step and no bias; no sampler saves a tenth "
            "of its step."
        )
    fitting = [row for row in cheaper if known_bias(row) <= _MOST_BIAS]
    if not fitting:
        nearest = min(cheaper, key=known_bias)
        return (
            f"Recommendation: full_softmax, {full:,.1f} ms a step: of the samplers with a cheaper step none "
            f"has a bias of at most {_MOST_BIAS:.0%}; the least is {_figures(nearest)}."
        )
    best = min(fitting, key=lambda row: row["milliseconds"])
    return (
        f"Recommendation: sampled_softmax with {_figures(best)}; it is the cheapest with a bias of at most "
        f"{_MOST_BIAS:.0%}, and the full softmax takes {full:,.1f} ms a step."
    )


def _figures(row: Row) -> str:
    size = f" (K = {row['negatives']})" if row["negatives"] else ""
    bound = "" if row["bias_low"] > 0.0 else "at most "
    return f"{row['sampler']}{size}: bias {bound}{known_bias(row):.1%}, {row['milliseconds']:,.1f} ms a step"


def plot_report(report: dict[str, Any], path: Path) -> None:
    """Plot the bias against cost and against the number of candidates, in the format of the suffix."""
    figure = Figure(figsize=(13.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in report["samplers"]:
        lines[row["sampler"]].append(row)
    for axes, against in ((left, "milliseconds"), (right, "candidates")):
        for number, (name, rows) in enumerate(lines.items()):
            style: dict[str, Any] = {
                "color": f"C{number % 10}",
                "marker": _MARKERS[number % len(_MARKERS)],
                "markersize": 5,
            }
            biases = [max(_LEAST_BIAS, known_bias(row)) for row in rows]
            line = "-" if number < 10 else "--"
            axes.plot([row[against] for row in rows], biases, linestyle=line, label=name, **style)
            # A bias within its error of zero is a hollow marker at its upper bound.
            unsure = [
                (row[against], bias) for row, bias in zip(rows, biases, strict=True) if row["bias_low"] <= 0.0
            ]
            axes.plot(*zip(*unsure, strict=True), linestyle="none", markerfacecolor="white", **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(visible=True, which="major", alpha=0.3)
    left.axvline(report["full_softmax"]["milliseconds"], color="black", linewidth=1, linestyle=":")
    left.set_xlabel("ms a step (dotted: the full softmax, which has no bias)")
    right.set_xlabel("candidates K")
    left.set_ylabel("relative bias of the gradient (hollow: at most)")
    left.set_title(f"bias against cost, {report['items']:,} items, batches of {report['batch_size']:,}")
    right.set_title("bias against the number of candidates")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date the same report gives the same file.
    dateless = {"Date": None} if path.suffix.lower() == ".svg" else None
    figure.savefig(path, dpi=150, metadata=dateless)
