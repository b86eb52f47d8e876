import re

import pytest

from turret.training.markup.share_chart import Bars, share_chart


def heights(drawn: str, style: str) -> list[float]:
    return [float(one) for one in re.findall(rf'height="([\d.]+)" rx="1.5" class="fill {style}"', drawn)]


def test_bars_are_as_high_as_their_shares() -> None:
    series = [Bars("events", [0.6, 0.3], "other"), Bars("shown", [0.9, 0.1], "c1")]
    drawn = share_chart("shares", "items", ["top", "rest"], series)
    first, second = heights(drawn, "other"), heights(drawn, "c1")
    assert first[0] / first[1] == pytest.approx(2.0, rel=0.01)
    assert second[0] / first[0] == pytest.approx(1.5, rel=0.01)
    assert "shown, rest: 10.0%" in drawn


def test_shares_of_nothing_are_drawn_as_nothing() -> None:
    assert heights(share_chart("shares", "items", ["top"], [Bars("shown", [0.0], "c1")]), "c1") == [0.0]
