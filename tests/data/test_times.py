from datetime import UTC, date, datetime, timedelta, timezone

import polars as pl
import pytest

from data.errors import ColumnError
from data.schema import ColumnSettings
from data.times import choose_reader, parse_moment


def _read(
    values: list[object], dtype: pl.DataType | None = None, **settings: object
) -> tuple[str, list[object]]:
    frame = pl.LazyFrame({"raw": pl.Series(values, dtype=dtype)})
    reader = choose_reader(frame, "raw", "when", ColumnSettings.model_validate(settings))
    return reader.kind, frame.select(reader.value).collect().to_series().to_list()


def _ms(*when: int, zone: timezone = UTC) -> int:
    return round(datetime(*when, tzinfo=zone).timestamp() * 1000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("scale", [1, 1000, 1_000_000])
@pytest.mark.parametrize("form", [int, str])
def test_plausible_times_since_1970_become_milliseconds(scale: int, form: type) -> None:
    values = [form(moment * scale) for moment in (978_300_760, 1_046_454_590)]
    assert _read(values) == ("timestamp", [978_300_760_000, 1_046_454_590_000])


def test_other_numbers_stay_numbers_of_their_kind() -> None:
    assert _read([0, 5, None]) == ("number", [0, 5, None])
    assert _read(["3", "-1"]) == ("number", [3, -1])
    assert _read([1.0, None, 3.0]) == ("number", [1, None, 3])
    kind, values = _read([0.5, float("inf"), 1.0])
    assert (kind, values) == ("number", [0.5, None, 1.0])


def test_a_stated_unit_is_believed() -> None:
    assert _read([5], time_unit="seconds") == ("timestamp", [5000])
    assert _read([5_000], time_unit="microseconds") == ("timestamp", [5])
    assert _read([1_046_454_590], time_unit="number") == ("number", [1_046_454_590])
    assert _read([1.25], time_unit="seconds") == ("timestamp", [1250])


def test_narrow_integers_do_not_overflow() -> None:
    assert _read([1_500_000_000], pl.Int32())[1] == [1_500_000_000_000]


def test_dates_and_times_of_any_zone_become_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert _read([datetime(2020, 1, 1, 10, 30)]) == ("timestamp", [_ms(2020, 1, 1, 10, 30)])
    assert _read([date(2020, 1, 2)]) == ("timestamp", [_ms(2020, 1, 2)])
    zoned = pl.Series([datetime(2020, 7, 1, 10)]).dt.replace_time_zone("Europe/Berlin").to_list()
    assert _read(zoned, pl.Datetime("us", "Europe/Berlin"))[1] == [_ms(2020, 7, 1, 10, zone=east)]


def test_texts_of_iso_8601_are_read_in_all_their_shapes() -> None:
    east = timezone(timedelta(hours=2))
    texts = ["2020-01-01", "2020-01-01 10:30", "2020-01-01T10:30:15", "2020-01-01T10:30:15.250Z"]
    values = _read([*texts, "2020-01-01T10:30:15+02:00", "later", None])[1]
    day = _ms(2020, 1, 1)
    expected = [day, day + 37_800_000, day + 37_815_000, day + 37_815_250]
    assert values == [*expected, _ms(2020, 1, 1, 10, 30, 15, zone=east), None, None]


def test_day_and_month_are_told_apart_by_what_can_only_be_a_day() -> None:
    assert _read(["1/12/2020 8:26", "13/12/2020 9:00"])[1][0] == _ms(2020, 12, 1, 8, 26)
    assert _read(["1/12/2020 8:26", "1/13/2020 9:00"])[1][0] == _ms(2020, 1, 12, 8, 26)
    with pytest.raises(ColumnError, match=r"'when' \(such as '1/12/2020'\) fit .*--time-format"):
        _read(["1/12/2020"])
    assert _read(["1/12/2020"], time_format="%d/%m/%Y")[1] == [_ms(2020, 12, 1)]


def test_what_orders_nothing_and_what_contradicts_is_refused() -> None:
    with pytest.raises(ColumnError, match=r"'when' holds List\(Int64\), which gives events no order"):
        _read([[1]])
    with pytest.raises(
        ColumnError, match="time_unit = 'seconds' is for numbers, but column 'when' holds dates"
    ):
        _read(["2020-01-01"], time_unit="seconds")


def test_moments_of_the_configuration_are_in_the_unit_of_the_times() -> None:
    assert parse_moment("2020-01-01 10:30", "timestamp") == _ms(2020, 1, 1, 10, 30)
    assert parse_moment(7, "number") == 7
    with pytest.raises(ColumnError, match="'soon' is no date or time"):
        parse_moment("soon", "timestamp")
    with pytest.raises(ColumnError, match="give a number"):
        parse_moment("2020-01-01", "number")
