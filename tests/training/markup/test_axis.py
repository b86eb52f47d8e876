import pytest
from hypothesis import given
from hypothesis import strategies as st

from turret.training.markup.axis import Axis, tick_text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.0, 10.0, [0, 2, 4, 6, 8, 10]), (0.31, 0.52, [0.35, 0.4, 0.45, 0.5]), (0, 330, [0, 100, 200, 300])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert Axis(low, high, 0.0, 100.0).ticks() == pytest.approx(expected)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5))
def test_all_values_and_ticks_are_on_the_axis(values: list[float]) -> None:
    """Also if there is only one value, or it is zero."""
    axis = Axis.of(values, 200.0, 10.0, margin=0.06)
    assert axis.low < axis.high
    assert all(9.99 <= axis.at(value) <= 200.01 for value in [*values, *axis.ticks()])
    assert len(axis.ticks()) <= 7


def test_ticks_are_short() -> None:
    texts = [tick_text(value) for value in (0.0, 0.1 + 0.2, 0.00005, 1200.0, 61678.2)]
    assert texts == ["0", "0.3", "5e-05", "1,200", "61,678"]
