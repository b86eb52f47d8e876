from typing import Any

from benchmarks.estimators_page import report_section


def row(sampler: str, negatives: int | None, **changed: Any) -> dict[str, Any]:
    figures = {
        "sampler": sampler,
        "negatives": negatives,
        "candidates": 512.0,
        "kl": 0.5,
        "effective_share": 0.25,
        "bias": 0.125,
        "bias_low": 0.1,
        "bias_high": 0.15,
        "milliseconds": 30.0,
    }
    return {**figures, **changed}


RESULTS: dict[str, Any] = {
    "machine": {"cores": 2, "date": "2026-11-20T00:00:00"},
    "sets": {
        "some": {
            "items": 1234,
            "dimension": 64,
            "batch_size": 1024,
            "scoring": {"kind": "cosine", "temperature": 0.07},
            "experiment": {"training": {"epochs": 3}},
            "queries": 64,
            "draws": 200,
            "full_softmax": {"milliseconds": 20.0},
            "samplers": [
                row("uniform", 4),
                row("uniform", 64, bias=0.05, bias_low=0.0, bias_high=0.07),
                row("in_batch", None, kl=None),
            ],
            "staleness": [
                row("quadratic", 64, refresh_every=1, steps=10, moved=0.2),
                row("quadratic", 64, refresh_every=10, steps=10, moved=0.2, effective_share=0.2),
            ],
        }
    },
}


def test_a_sampler_is_a_line_with_its_bias_at_every_size() -> None:
    """Sizes that were not measured stay empty, and a bias that may be none is a bound."""
    lines = report_section(RESULTS).splitlines()
    assert "| uniform | 0.50 | 25% | 12.5% |  | < 7.0% |  | 1.5 |" in lines
    assert "| in_batch | ∞ | 25% | 12.5% (K = 512) |  |  |  | 1.5 |" in lines


def test_every_line_of_a_table_has_as_many_cells_as_its_head() -> None:
    rows = [line for line in report_section(RESULTS).splitlines() if line.startswith("|")]
    tables = ([line for line in rows if line.count("|") == width] for width in (9, 6))
    assert sum(len(table) for table in tables) == len(rows)


def test_old_vectors_have_their_ages_side_by_side() -> None:
    text = report_section(RESULTS)
    assert "| K = 64 | bias, `refresh_every = 1` | ESS | bias, `refresh_every = 10` | ESS |" in text
    assert "| quadratic | 12.5% | 25% | 12.5% | 20% |" in text
    assert "(10 more steps moved the item vectors by 20%.)" in text


def test_it_is_said_what_was_measured_on_what() -> None:
    text = report_section(RESULTS)
    for words in ("1,234 items", "temperature 0.07", "64 queries", "1,024 examples", "2 cores (2026-11-20"):
        assert words in text
    assert "benchmarks/results/sampler_report_some.svg" in text
