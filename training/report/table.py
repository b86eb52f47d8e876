"""A sampler report as text tables."""

from collections.abc import Iterator
from typing import Any

from turret.data.text import paragraph, text_table
from turret.training.report.choice import best_rows, recommendation

# With the full softmax ten rows.
_BEST = 9


def report_table(report: dict[str, Any], show_all: bool = False) -> str:
    """Tables of samplers and of stale item vectors, notes, skipped samplers, and a recommendation.

    The first table has the best samplers by bias and cost, or all of them.
    """
    staleness = [_staleness(report)] if report["staleness"] else []
    tables = [_samplers(report, show_all), _in_batch_losses(report), *staleness]
    sentences = [*notes(report), *_skipped(report), recommendation(report)]
    return "\n".join([*tables, *map(paragraph, sentences)])


def _samplers(report: dict[str, Any], show_all: bool) -> str:
    rows = report["samplers"] if show_all else best_rows(report["samplers"], _BEST)
    left_out = len(report["samplers"]) - len(rows)
    full = ("full softmax", "", "", "", "0", "0", f"{report['full_softmax']['milliseconds']:,.1f}")
    return text_table(
        ("sampler", "K", "KL", "ESS", "bias", "variance", "ms a step"),
        [*((*_shown(row), f"{row['milliseconds']:,.1f}") for row in rows), full],
        f"sampled softmax on {report['queries']} queries, {report['items']:,} items",
        f"the best by bias and cost; --all shows {left_out} more" if left_out else None,
    )


def _in_batch_losses(report: dict[str, Any]) -> str:
    rows = (
        (row["loss"], f"{row['batch_size']:,}", shown_bias(row), f"{row['variance']:.3g}")
        for row in report["in_batch_losses"]
    )
    return text_table(("loss", "batch", "bias", "variance"), rows, "losses over in-batch candidates")


def _staleness(report: dict[str, Any]) -> str:
    first = report["staleness"][0]
    rows = []
    for row in report["staleness"]:
        name, *values = _shown(row)
        rows.append((name, str(row["refresh_every"]), *values))
    return text_table(
        ("sampler", "refresh_every", "K", "KL", "ESS", "bias", "variance"),
        rows,
        "stale item vectors",
        f"after {first['steps']} more steps, which moved the item vectors by {first['moved']:.1%}",
    )


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
