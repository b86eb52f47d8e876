from typing import Any

from benchmarks.sampler_bias_summary import summary, table, within


def row(sampler: str, k: int, cross_entropy: float, absolute: bool = True) -> dict[str, Any]:
    return {"set": "shop", "sampler": sampler, "k": k, "absolute": absolute, "cross_entropy": cross_entropy}


ROWS = [
    row("full", 0, 5.0),
    row("full", 0, 4.0, absolute=False),
    *(row("uniform", k, value) for k, value in ((4, 5.04), (8, 5.2), (16, 5.06), (32, 5.04), (64, 5.0))),
    *(row("quadratic", k, value) for k, value in ((4, 5.3), (8, 5.05), (16, 5.0))),
    row("positive_features", 4, 4.1, absolute=False),
]


def test_the_k_needed_is_the_one_from_which_on_all_stay_within() -> None:
    """A small K that is near by luck does not count where a larger one is far."""
    assert within(ROWS, "uniform") == 32
    assert within(ROWS, "quadratic") == 8
    assert within(ROWS, "positive_features") is None
    assert within(ROWS, "positive_features", share=0.03) == 4


def test_the_ratio_is_that_of_the_ks_needed() -> None:
    """Where uniform never gets there, twice the largest K stands for it, and the summary says so."""
    assert summary(ROWS)["uniform_over_quadratic"] == {"shop": 4.0}
    far = [{**r, "cross_entropy": 9.0} if r["sampler"] == "uniform" else r for r in ROWS]
    assert summary(far)["uniform_over_quadratic"] == {"shop": 16.0}
    assert summary(far)["uniform_never_within"] == ["shop"]


def test_the_table_has_a_line_a_sampler() -> None:
    """Without the full softmax, which stands in the title."""
    shown = table(ROWS, "shop")
    assert shown.row_count == 3
    assert "5.0000" in str(shown.title)
