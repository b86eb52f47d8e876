import numpy as np
import pytest

from benchmarks.next_items import difference


def test_the_interval_covers_the_true_difference_as_often_as_it_says() -> None:
    """Of 200 samples of normal differences 95 % do, give or take three standard deviations of that share."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        values = random.normal(0.3, 1.0, 100)
        found = difference(values, np.zeros(100), range(100), replicates=300)
        covered += found["low"] <= 0.3 <= found["high"]
    assert 0.95 - 3 * (0.95 * 0.05 / 200) ** 0.5 - 0.02 < covered / 200 <= 1.0


def test_questions_of_one_session_are_drawn_together() -> None:
    """A hundred copies of each of ten values say no more than the ten: the interval must not shrink."""
    values = np.arange(10.0)
    once = difference(values, np.zeros(10), range(10))
    copied = difference(np.repeat(values, 100), np.zeros(1000), np.repeat(np.arange(10), 100))
    assert copied == pytest.approx(once)
    apart = difference(np.repeat(values, 100), np.zeros(1000), range(1000))
    assert apart["high"] - apart["low"] < 0.3 * (once["high"] - once["low"])


def test_the_mean_is_over_questions() -> None:
    """Three of one session and one of another: not the mean of the two sessions' means."""
    found = difference([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [7, 7, 7, 9])
    assert found["difference"] == 0.75
    assert (found["low"], found["high"]) == (0.0, 1.0)


def test_equal_answers_do_not_differ() -> None:
    assert difference([0.2, 0.7], [0.2, 0.7], [1, 2]) == {"difference": 0.0, "low": 0.0, "high": 0.0}
