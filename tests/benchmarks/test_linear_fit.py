import pytest

from benchmarks.plan_figures import fit, worst_error

POINTS = [{"base": 1.0, "x": x, "y": y} for x, y in ((1.0, 2.0), (4.0, 2.0), (4.0, 9.0), (7.0, 1.0))]


def test_rates_of_a_linear_quantity_are_found() -> None:
    values = [5 + 3 * point["x"] + 0.25 * point["y"] for point in POINTS]
    assert fit(POINTS, values, ("base", "x", "y")) == pytest.approx({"base": 5.0, "x": 3.0, "y": 0.25})


def test_no_rate_is_negative() -> None:
    """What seems to fall with a size does not grow with it."""
    values = [9 + 2 * point["x"] - 0.5 * point["y"] for point in POINTS]
    rates = fit(POINTS, values, ("base", "x", "y"))
    assert rates["y"] == 0.0
    assert min(rates.values()) >= 0.0
    assert 0.05 < worst_error(POINTS, values, rates) < 0.5


def test_small_values_count_as_much_as_large_ones() -> None:
    points = [{"x": 1.0}, {"x": 1000.0}]
    assert fit(points, [1.0, 2000.0], ("x",))["x"] == pytest.approx(1.2)
