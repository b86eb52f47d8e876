"""A sampler report as text tables."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from turret.training.report.choice import best_rows, recommendation

WIDTH = 100
# With the full softmax ten rows.
_BEST = 9


def report_table(report: dict[str, Any], show_all: bool = False) -> str:
    """Tables of samplers and of stale item vectors, notes, skipped samplers, and a recommendation.

    The first table has the best samplers by bias and cost, or all of them.
    """
    lines = StringIO()
    console = Console(file=lines, width=WIDTH)
    console.print(_samplers(report, show_all))
    console.print(_in_batch_losses(report))
    if report["staleness"]:
        console.print(_staleness(report))
    for line in [*notes(report), *_skipped(report)]:
        console.print(line, highlight=False, markup=False)
    console.print(recommendation(report), highlight=False, markup=False)
    return lines.getvalue().rstrip()


def _samplers(report: dict[str, Any], show_all: bool) -> Table:
    title = f"sampled softmax on {report['queries']} queries, {report['items']:,} items"
    rows = report["samplers"] if show_all else best_rows(report["samplers"], _BEST)
    left_out = len(report["samplers"]) - len(rows)
    caption = f"the best by bias and cost; --all shows {left_out} more" if left_out else None
    table = Table(title=title, caption=caption)
    for heading in ("sampler", "K", "KL", "ESS", "bias", "variance", "ms a step"):
        table.add_column(heading, justify="left" if heading == "sampler" else "right")
    for row in rows:
        table.add_row(*_shown(row), f"{row['milliseconds']:,.1f}")
    table.add_row("full softmax", "", "", "", "0", "0", f"{report['full_softmax']['milliseconds']:,.1f}")
    return table


def _in_batch_losses(report: dict[str, Any]) -> Table:
    table = Table(title="losses over in-batch candidates")
    for heading in ("loss", "batch", "bias", "variance"):
        table.add_column(heading, justify="left" if heading == "loss" else "right")
    for row in report["in_batch_losses"]:
        table.add_row(row["loss"], f"{row['batch_size']:,}", shown_bias(row), f"{row['variance']:.3g}")
    return table


def _staleness(report: dict[str, Any]) -> Table:
    row = report["staleness"][0]
    table = Table(
        title="stale item vectors",
        caption=f"after {row['steps']} more steps, which moved the item vectors by {row['moved']:.1%}",
    )
    for heading in ("sampler", "refresh_every", "K", "KL", "ESS", "bias", "variance"):
        table.add_column(heading, justify="left" if heading == "sampler" else "right")
    for row in report["staleness"]:
        name, *values = _shown(row)
        table.add_row(name, str(row["refresh_every"]), *values)
    return table


def _shown(row: dict[str, Any]) -> tuple[str, ...]:
    kl = "∞" if row["kl"] is None else f"{row['kl']:.3f}"
    return (
        row["sampler"],
        f"{round(row['candidates']):,}",
        kl,
        f"{row['effective_share']:.1%}",
        shown_bias(row),
        f"{row['variance']:.3g}",
    )


def shown_bias(row: dict[str, Any]) -> str:
    """The bias in per cent, or its upper bound where it is within its error of zero."""
    if row["bias_low"] > 0.0:
        return f"{row['bias']:.1%}"
    return f"< {row['bias_high']:.1%}"


def notes(report: dict[str, Any]) -> Iterator[str]:
    """One sentence about each measure and its conditions."""
    yield (
        "KL: divergence of the softmax from the proposal in nats, both without the positive; ∞ where the "
        "proposal never draws an item of the softmax."
    )
    yield "ESS: effective sample size of the weights exp(s - l), as a share of the candidates."
    yield (
        "bias, variance: of the gradient with respect to the user vectors, relative to the full softmax's, "
        f"from up to {report['draws']} draws; < is an upper bound where zero is within the error."
    )
    yield (
        f"ms a step: towers, draw, scores, loss, backward and the sampler's update, without the optimiser, "
        f"for {report['batch_size']:,} examples."
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


def _skipped(report: dict[str, Any]) -> Iterator[str]:
    for skipped in report["skipped"]:
        sizes = f" with K = {skipped['negatives']}" if skipped["negatives"] else ""
        yield f"Not measured: {skipped['sampler']}{sizes}: {skipped['reason']}"
