import pytest

from turret.training.markup.interval import MARGIN, WIDTH, Scale, interval_line


def test_a_scale_holds_zero_and_all_intervals() -> None:
    scale = Scale.of([{"mean": 0.2, "low": 0.1, "high": 0.3}, {"mean": 0.4, "low": 0.35, "high": 0.5}])
    assert (scale.low, scale.high) == (0.0, 0.5)
    assert scale.x(0.0) == MARGIN
    assert scale.x(0.5) == pytest.approx(WIDTH - MARGIN)
    assert scale.x(0.25) == pytest.approx(WIDTH / 2)


def test_intervals_of_zero_are_drawn() -> None:
    nothing = {"mean": 0.0, "low": 0.0, "high": 0.0}
    drawn = interval_line(nothing, Scale.of([nothing]), is_own=False)
    assert drawn.count("<line") == 2
    assert 'class="dot other"' in drawn
