import numpy as np
import pytest

from turret.training.inspection.exposure import exposure, gini, spread
from turret.training.inspection.rankings import Rankings


@pytest.mark.parametrize(
    ("counts", "expected"),
    [([1, 1, 1, 1], 0.0), ([0, 0, 0, 8], 0.75), ([0, 0, 0], 0.0), ([1, 3], 0.25), ([5], 0.0)],
)
def test_the_gini_coefficient_is_half_the_relative_mean_difference(
    counts: list[int], expected: float
) -> None:
    assert gini(np.array(counts)) == pytest.approx(expected)
    if sum(counts):
        pairs = np.abs(np.subtract.outer(counts, counts)).mean()
        assert gini(np.array(counts)) == pytest.approx(pairs / (2 * np.mean(counts)))


def test_shares_go_from_popular_to_rare_items() -> None:
    """Five items are five groups; the third item, not the first, is the most popular."""
    found = spread(np.array([0, 2, 6, 2, 0]), np.array([3, 4, 9, 1, 0]))
    assert found.shares == pytest.approx([0.6, 0.2, 0.0, 0.2, 0.0])
    assert found.coverage == pytest.approx(3 / 5)
    assert found.popularity == pytest.approx((2 * 4 + 6 * 9 + 2 * 1) / 10)


def test_nothing_recommended_is_a_spread_of_zeros() -> None:
    found = spread(np.zeros(3, dtype=np.int64), np.array([1, 2, 3]))
    assert (found.shares, found.coverage, found.popularity) == ([0.0, 0.0, 0.0], 0.0, 0.0)


def test_the_exposure_of_a_run_counts_every_recommendation(rankings: Rankings) -> None:
    found = exposure(rankings)
    for one in (found.events, found.targets, found.recommended):
        assert sum(one.shares) == pytest.approx(1.0)
        assert len(one.shares) == 10
    assert found.events.shares == sorted(found.events.shares, reverse=True)
