"""The choice among samplers, on rows made by hand."""

from typing import Any

import pytest

from turret.training.report.choice import best_rows, recommendation


def row(
    name: str, milliseconds: float, bias: float, low: float = 0.001, size: int | None = 64
) -> dict[str, Any]:
    return {
        "sampler": name,
        "negatives": size,
        "milliseconds": milliseconds,
        "bias": bias,
        "bias_low": low,
        "bias_high": bias + 0.01,
    }


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [one["sampler"] for one in rows]


ROWS = [
    row("slow", 5, 0.5),
    row("exact", 9, 0.0),
    row("cheap", 1, 0.4),
    row("middle", 3, 0.2),
    row("bad", 4, 0.3),
]


def test_efficient_samplers_come_first_and_the_rest_fills_the_table() -> None:
    """`bad` and `slow` are dearer and more biased than `middle`; the table is sorted by cost."""
    assert names(best_rows(ROWS, 3)) == ["cheap", "middle", "exact"]
    assert names(best_rows(ROWS, 4)) == ["cheap", "middle", "bad", "exact"]
    assert names(best_rows(ROWS, 9)) == ["cheap", "middle", "bad", "slow", "exact"]
    assert names(best_rows(ROWS, 2)) == ["cheap", "exact"]
    assert best_rows([], 9) == []


def test_a_bias_that_can_not_be_told_from_none_counts_with_its_bound() -> None:
    unsure = row("unsure", 2, 0.0, low=0.0)
    assert names(best_rows([unsure, row("sure", 3, 0.005)], 9)) == ["unsure", "sure"]
    assert names(best_rows([unsure, row("sure", 3, 0.02)], 1)) == ["unsure"]


@pytest.mark.parametrize(
    ("full", "rows", "sentence"),
    [
        (
            20.0,
            [row("uniform", 2, 0.4), row("quadratic", 4, 0.03), row("dear", 6, 0.001)],
            "Recommendation: sampled_softmax with quadratic (K = 64): bias 3.0%, 4.0 ms a step; it is the "
            "cheapest with a bias of at most 5%, and the full softmax takes 20.0 ms a step.",
        ),
        (
            20.0,
            [row("in_batch", 4, 0.0, low=0.0, size=None)],
            "Recommendation: sampled_softmax with in_batch: bias at most 1.0%, 4.0 ms a step; it is the "
            "cheapest with a bias of at most 5%, and the full softmax takes 20.0 ms a step.",
        ),
        (
            20.0,
            [row("uniform", 2, 0.4), row("quadratic", 4, 0.3), row("exact", 19, 0.0)],
            "Recommendation: full_softmax, 20.0 ms a step: of the samplers with a cheaper step none has a "
            "bias of at most 5%; the least is quadratic (K = 64): bias 30.0%, 4.0 ms a step.",
        ),
        (
            2.0,
            [row("uniform", 1.9, 0.0), row("quadratic", 4, 0.0)],
            "Recommendation: full_softmax, 2.0 ms a step and no bias; no sampler saves a tenth of its step.",
        ),
    ],
)
def test_the_cheapest_sampler_with_little_bias_is_recommended(
    full: float, rows: list[dict[str, Any]], sentence: str
) -> None:
    """The full softmax where none is, or where none is cheaper."""
    assert recommendation({"full_softmax": {"milliseconds": full}, "samplers": rows}) == sentence
