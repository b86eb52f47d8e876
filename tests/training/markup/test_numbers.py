import pytest

from turret.training.markup import numbers

VALUE = {"mean": -0.01234, "low": -0.02, "high": 0.00004}


def test_numbers_are_those_of_the_tables_of_evaluate() -> None:
    """But with a minus that is as wide as a plus."""
    assert numbers.metric({"mean": 0.12345, "low": 0.1, "high": 0.2}) == "0.1235"
    assert numbers.metric(0.5) == "0.5000"
    assert numbers.interval({"mean": 0.12345, "low": 0.1, "high": 0.2}) == "[0.1000, 0.2000]"
    assert numbers.difference(VALUE) == "\N{MINUS SIGN}0.0123"
    assert numbers.difference_interval(VALUE) == "[\N{MINUS SIGN}0.0200, +0.0000]"
    assert numbers.gain(0.5) == "+50 %"
    assert numbers.count(12345.0) == "12,345"
    assert numbers.count(None) == ""


@pytest.mark.parametrize(("share", "text"), [(0.0123, "1.2 %"), (0.5, "50 %"), (1.0, "100 %")])
def test_small_shares_keep_a_digit(share: float, text: str) -> None:
    assert numbers.share(share) == text


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (300.0, "5 min"), (9000.0, "2.5 h")])
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert numbers.duration(seconds) == text
