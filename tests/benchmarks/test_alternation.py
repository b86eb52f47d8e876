from collections.abc import Callable

import pytest

from benchmarks.alternation import Side, Turn, alternate, ratio, summary


def side(name: str, log: list[str], seconds: float) -> Side:
    def run(steps: int) -> tuple[int, float]:
        log.append(name)
        return 100 * steps, seconds

    return run


def test_sides_take_turns_after_one_to_warm_up() -> None:
    log: list[str] = []
    turns = {"ours": Turn(side("ours", log, 1.0), 2), "theirs": Turn(side("theirs", log, 4.0), 1)}
    assert alternate(turns, rounds=2) == {"ours": [200.0, 200.0], "theirs": [25.0, 25.0]}
    assert log == ["ours", "theirs"] * 3


def test_the_turn_to_warm_up_does_not_count() -> None:
    seconds = iter([100.0, 1.0, 1.0])
    slow_at_first: Callable[[int], tuple[int, float]] = lambda steps: (steps, next(seconds))  # noqa: E731
    assert alternate({"ours": Turn(slow_at_first, 5)}, rounds=2) == {"ours": [5.0, 5.0]}


def test_we_are_compared_with_the_best_of_the_others() -> None:
    """By their medians; the spread is that of the ratios of single rounds."""
    rates = {"ours": [30.0, 10.0, 20.0], "fast": [4.0, 5.0, 6.0], "slow": [1.0, 1.0, 99.0]}
    compared = ratio(rates, "ours", ["slow", "fast"])
    assert compared["against"] == "fast"
    assert compared["ratio"] == pytest.approx(4.0)
    assert compared["ratio_least"] == pytest.approx(2.0)
    assert compared["ratio_greatest"] == pytest.approx(7.5)


def test_a_summary_has_the_median_and_both_ends() -> None:
    assert summary({"ours": [3.0, 1.0, 2.0]}) == {"ours": {"median": 2.0, "least": 1.0, "greatest": 3.0}}
