"""The lift of a canary: its interval, and the sentence about it."""

import math

import numpy as np
import pytest

from turret.data.answers.lift import Totals, as_json, lift, mixture, radius, sentence


def totals(users: int, mean: float, spread: float = 1.0) -> Totals:
    """A route whose users have the values mean - spread and mean + spread, evenly."""
    squares = users * (mean**2 + spread**2)
    return Totals(users, users, users * mean, squares)


def test_the_interval_is_that_of_the_paper() -> None:
    """Theorem 2.2 in the paper's form, with t = information, sigma = 1 and rho² = 1 / tau, by hand."""
    result = lift(totals(10_000, 2.0), totals(20_000, 2.1))
    assert result is not None
    variance = 1 / (9_999 * 4.0) + 1 / (19_999 * 2.1**2)
    t, rho2 = 1 / variance, 1 / mixture()
    expected = math.sqrt(2 * (t * rho2 + 1) / (t**2 * rho2) * math.log(math.sqrt(t * rho2 + 1) / 0.05))
    assert math.log1p(result.high) - math.log(1.05) == pytest.approx(expected, rel=1e-9)
    assert math.log(1.05) - math.log1p(result.low) == pytest.approx(expected, rel=1e-9)


def test_the_mixture_is_the_best_where_it_should_be() -> None:
    information = next(t for t in np.geomspace(10, 1e6, 20_000) if radius(t) <= 0.05)
    others = [radius(information, mixture() * factor) for factor in (0.5, 0.8, 1.25, 2.0)]
    assert min(others) > radius(information)


def test_a_route_with_few_users_who_buy_gets_no_interval() -> None:
    few = Totals(1_000, 49, 49.0, 49.0)
    many = Totals(1_000, 98, 98.0, 98.0)
    assert lift(few, many) is None
    assert sentence(None, few, many, 7.0).startswith(
        "not yet: about 1 more day until 50 users of each route buy"
    )
    nothing = Totals(1_000, 0, 0.0, 0.0)
    assert "no user of one route has an outcome" in sentence(lift(nothing, many), nothing, many, 7.0)
    assert "no user of one route" in sentence(lift(Totals(0, 0, 0, 0), nothing), nothing, nothing, 0.0)


@pytest.mark.parametrize(
    "odd",
    [
        Totals(1_000, 60, -5.0, 500.0),  # more is returned than is sold
        Totals(1_000, 60, 0.0, 500.0),
        Totals(1_000, 60, 1e-300, 1e-300),
        Totals(1_000, 60, 1e308, math.inf),
    ],
)
def test_values_whose_sum_has_no_logarithm_are_not_compared(odd: Totals) -> None:
    usual = Totals(1_000, 98, 98.0, 98.0)
    for live, canary in ((odd, usual), (usual, odd)):
        assert lift(live, canary) is None
        fields = as_json(None, live, canary, 7.0)
        assert not fields["decided"]
        assert "values of one route have a sum of 0 or less" in fields["sentence"]
        assert "name a field with values above 0" in fields["sentence"]


def test_a_clear_difference_is_decided_either_way() -> None:
    for mean, words in ((2.2, "10.0 % more"), (1.8, "10.0 % less")):
        live, canary = totals(100_000, 2.0), totals(100_000, mean)
        result = lift(live, canary)
        assert result is not None
        assert result.is_decided
        text = sentence(result, live, canary, 9.0)
        assert text.startswith(f"canary sells {words} [")
        assert text.endswith("]: enough to decide")
        assert as_json(result, live, canary, 9.0)["decided"]


def test_an_unclear_difference_says_how_long_it_may_take() -> None:
    """After these days, with as many more users, the same difference is just decided."""
    live, canary = totals(1_000, 1.0), totals(1_000, 1.1)
    result = lift(live, canary)
    assert result is not None
    assert not result.is_decided
    left = result.days_left(10.0)
    assert left is not None
    grown = [totals(round(1_000 * (10 + left) / 10 * 1.02), mean) for mean in (1.0, 1.1)]
    after = lift(*grown)
    assert after is not None
    assert after.is_decided
    assert f"about {math.ceil(left)} more days if the difference stays" in sentence(
        result, live, canary, 10.0
    )


def test_equal_versions_are_never_told_apart() -> None:
    live = totals(1_000, 1.0)
    result = lift(live, live)
    assert result is not None
    assert result.days_left(1.0) is None
    assert "can't be told within a year" in sentence(result, live, live, 1.0)


def test_users_who_all_buy_the_same_have_no_variance() -> None:
    result = lift(totals(100, 1.0, 0.0), totals(100, 1.0, 0.0))
    assert result is not None
    assert result.low == pytest.approx(0, abs=1e-5)
