"""The samplers of a report that are worth a look, and the one to take."""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
# Above it the optimum of training moves visibly.
MOST_BIAS = 0.05
# A sampler has to save a tenth of a step, which is more than the noise of the times.
SAVING = 0.9


def known_bias(row: Row) -> float:
    """The bias, or its upper bound where it is within its error of zero."""
    return float(row["bias"] if row["bias_low"] > 0.0 else row["bias_high"])


def best_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """At most `count` rows, cheapest first: the efficient ones, then those that are efficient without these.

    A row is efficient if no cheaper one has as little bias. Of more efficient rows than fit, the cheapest,
    the least biased and others evenly between are taken.
    """
    chosen: list[Row] = []
    rest = sorted(rows, key=lambda row: (row["milliseconds"], known_bias(row)))
    while rest and len(chosen) < count:
        front: list[Row] = []
        for row in rest:
            if not front or known_bias(row) < known_bias(front[-1]):
                front.append(row)
        rest = [row for row in rest if not any(row is taken for taken in front)]
        chosen += _evenly(front, count - len(chosen))
    return sorted(chosen, key=lambda row: row["milliseconds"])


def _evenly(rows: list[Row], count: int) -> list[Row]:
    if len(rows) <= count:
        return rows
    if count == 1:
        return rows[-1:]
    return [rows[round(step * (len(rows) - 1) / (count - 1))] for step in range(count)]


def recommendation(report: dict[str, Any]) -> str:
    """One sentence: the cheapest sampler whose bias is small, or the full softmax."""
    full = report["full_softmax"]["milliseconds"]
    cheaper = [row for row in report["samplers"] if row["milliseconds"] <= SAVING * full]
    if not cheaper:
        return (
            f"Recommendation: full_softmax, {full:,.1f} ms a step and no bias; no sampler saves a tenth "
            "of its step."
        )
    fitting = [row for row in cheaper if known_bias(row) <= MOST_BIAS]
    if not fitting:
        nearest = min(cheaper, key=known_bias)
        return (
            f"Recommendation: full_softmax, {full:,.1f} ms a step: of the samplers with a cheaper step none "
            f"has a bias of at most {MOST_BIAS:.0%}; the least is {_figures(nearest)}."
        )
    best = min(fitting, key=lambda row: row["milliseconds"])
    return (
        f"Recommendation: sampled_softmax with {_figures(best)}; it is the cheapest with a bias of at most "
        f"{MOST_BIAS:.0%}, and the full softmax takes {full:,.1f} ms a step."
    )


def _figures(row: Row) -> str:
    size = f" (K = {row['negatives']})" if row["negatives"] else ""
    bound = "" if row["bias_low"] > 0.0 else "at most "
    return f"{row['sampler']}{size}: bias {bound}{known_bias(row):.1%}, {row['milliseconds']:,.1f} ms a step"
