"""The figures of the first week are those of the evaluations."""

from typing import Any

import pytest

from benchmarks.first_week import claim, summary


def interval(mean: float) -> dict[str, dict[str, float]]:
    return {"ndcg@10": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}}


def report(towers: float, **baselines: float) -> dict[str, Any]:
    return {
        "towers": interval(towers),
        **{name: interval(mean) for name, mean in baselines.items()},
        "differences": {name: interval(towers - mean) for name, mean in baselines.items()},
        "auto": {"picked": "set"},
    }


def test_a_set_is_compared_with_its_best_baseline() -> None:
    row = summary(report(0.33, popularity=0.1, ease=0.3, item_knn=0.2))
    assert row["best_baseline"] == "ease"
    assert row["auto_over_best_baseline"] == pytest.approx(1.1)
    assert row["differences"]["ease"]["mean"] == pytest.approx(0.03)


def test_the_claim_is_the_least_ratio_of_all_sets() -> None:
    rows = [summary(report(0.3, ease=0.2)), summary(report(0.18, popularity=0.2))]
    assert claim(rows)["auto_over_best_baseline"] == pytest.approx(0.9)
