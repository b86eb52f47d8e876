import math
from typing import Any

import pytest

from benchmarks.sampler_trainings.summary import summary, table, within


def row(sampler: str, k: int, cross_entropy: float, **changed: Any) -> dict[str, Any]:
    figures = {
        "set": "shop",
        "sampler": sampler,
        "k": k,
        "absolute": True,
        "seed": 0,
        "examples": 1000,
        "cross_entropy": cross_entropy,
        "perplexity": math.exp(cross_entropy),
    }
    return {**figures, **changed}


UNIFORM = ((4, 5.04), (8, 5.2), (16, 5.06), (32, 5.04), (64, 5.005))
ROWS = [
    row("full", 0, 5.0),
    row("full", 0, 4.99, examples=2000),
    row("full", 0, 4.0, absolute=False),
    row("full", 0, 3.9, absolute=False, examples=2000),
    *(row("uniform", k, value) for k, value in UNIFORM),
    *(row("quadratic", k, value) for k, value in ((4, 5.3), (8, 5.04), (16, 5.0))),
    row("positive_features", 4, 4.1, absolute=False),
]
OTHER_SEED = [
    row("full", 0, 5.1, seed=1),
    row("full", 0, 4.1, absolute=False, seed=1),
    *(row("uniform", k, value, seed=1) for k, value in ((16, 5.14), (64, 5.1))),
    *(row("quadratic", k, value, seed=1) for k, value in ((4, 5.4), (8, 5.105))),
]


def test_the_k_needed_is_the_one_from_which_on_all_stay_within() -> None:
    """A small K that is near by luck does not count where a larger one is far."""
    assert within(ROWS, "uniform", "cross_entropy") == 32
    assert within(ROWS, "quadratic", "cross_entropy") == 8
    assert within(ROWS, "positive_features", "cross_entropy") is None
    assert within(ROWS, "positive_features", "cross_entropy", share=0.03) == 4


def test_one_percent_of_the_perplexity_is_less_than_of_the_cross_entropy() -> None:
    """A hundredth of a nat, not a hundredth of five nats."""
    assert within(ROWS, "uniform", "perplexity") == 64
    assert within(ROWS, "quadratic", "perplexity") == 16


def test_needs_and_ratios_are_those_of_each_seed_with_mean_and_deviation() -> None:
    found = summary([*ROWS, *OTHER_SEED])
    needed = found["k_within_1pct"]["shop"]["cross_entropy"]
    assert needed["uniform"]["seeds"] == {"0": 32, "1": 16}
    assert needed["uniform"]["mean"] == 24
    assert needed["uniform"]["deviation"] == pytest.approx(8 * math.sqrt(2))
    assert "mean" not in needed["positive_features"]
    ratios = found["uniform_over_quadratic"]["shop"]
    assert ratios["cross_entropy"]["seeds"] == {"0": 4.0, "1": 2.0}
    assert ratios["perplexity"]["seeds"] == {"0": 4.0, "1": 8.0}
    assert ratios["perplexity"]["mean"] == 6.0


def test_where_uniform_never_gets_there_the_ratio_is_a_bound() -> None:
    far = [{**r, "cross_entropy": 9.0} if r["sampler"] == "uniform" else r for r in ROWS]
    ratios = summary(far)["uniform_over_quadratic"]["shop"]["cross_entropy"]
    assert ratios["seeds"] == {"0": 16.0}
    assert ratios["at_least"] == [0]


def test_convergence_compares_with_twice_the_examples() -> None:
    """The full softmax that samplers are held against is that on as many examples as theirs."""
    found = summary(ROWS)["convergence"]["shop"]
    assert found["absolute"]["change"] == pytest.approx(-0.002)
    assert found["absolute"]["converged"]
    assert not found["signed"]["converged"]


def test_a_full_softmax_that_overfits_is_held_at_its_least_cross_entropy() -> None:
    """Half the examples are no reference for the samplers."""
    half = row("full", 0, 5.02, examples=500)
    overfitting = [half, row("full", 0, 5.3, examples=2000), *(r for r in ROWS if r["examples"] == 1000)]
    found = summary(overfitting)
    assert found["full_softmax"]["shop"]["absolute"]["cross_entropy"]["mean"] == 5.0
    convergence = found["convergence"]["shop"]["absolute"]
    assert convergence["change_by_half"] == pytest.approx(0.004)
    assert convergence["least"]
    assert not convergence["converged"]
    assert not summary([*ROWS, half])["convergence"]["shop"]["absolute"]["least"]


def test_the_table_has_a_line_a_sampler() -> None:
    """Without the full softmax, which stands in the title."""
    shown = table([*ROWS, *OTHER_SEED], "shop")
    assert shown.row_count == 3
    assert "5.0500" in str(shown.title)
