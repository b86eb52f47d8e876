import pytest

from turret.data.errors import ConfigurationError
from turret.planning.amounts import Amount, byte_text, count_text, parse_count, time_text


def test_a_sum_knows_every_size_beyond_the_measured_ones() -> None:
    total = Amount(1.0, {"items": 1e6}) + Amount(2.0, {"items": 1e5, "events": 1e8}) * 2
    assert total == Amount(5.0, {"items": 1e5, "events": 1e8})


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "1 MB"), (3.4e8, "340 MB"), (1.24e9, "1.2 GB"), (9.96e9, "10 GB"), (4.56e13, "46 TB")],
)
def test_bytes_have_decimal_units(count: float, text: str) -> None:
    assert byte_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s"), (29.4, "29 s"), (121, "2.0 min"), (7200, "2.0 h"), (100 * 86_400, "100 days")],
)
def test_times_have_the_unit_that_people_use(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(35.6, "36"), (3567, "3,500"), (99_999_999, "99,000,000")])
def test_a_limit_is_rounded_down(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("250000", 250e3), ("250,000", 250e3), ("2_000", 2e3), ("250k", 250e3), ("2.5M", 2.5e6), ("1e8", 1e8)],
)
def test_counts_are_written_in_several_ways(text: str, count: float) -> None:
    assert parse_count("--users", text) == count


@pytest.mark.parametrize("text", ["", "ten", "-5", "0", "1e99", "inf", "nan", "5 M"])
def test_what_is_no_count_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--users .*must be a number from 1 to 1e\+13, such as"):
        parse_count("--users", text)
