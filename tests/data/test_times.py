"""Moments: those of configurations, and columns of times in all their forms."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest
from polars.io.plugins import register_io_source

from turret.data.errors import ColumnError
from turret.data.moments import parse_moment
from turret.data.reading.source_settings import ColumnSettings
from turret.data.reading.times import TimeReader, choose_reader, parse_time
from turret.data.rows import LocalRows


def _reader(values: pl.Series, **settings: object) -> TimeReader:
    rows = LocalRows(pl.LazyFrame({"raw": values}))
    return choose_reader(rows, "raw", "when", ColumnSettings.model_validate(settings))


def _read(values: Sequence[object] | pl.Series, **settings: object) -> tuple[str, list[object]]:
    column = pl.Series("raw", values)
    reader = _reader(column, **settings)
    return reader.kind, column.to_frame().select(reader.value).to_series().to_list()


def _ms(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


def test_likely_times_are_told_by_one_pass_over_the_log() -> None:
    passes = []

    def read(*_: object) -> Iterator[pl.DataFrame]:
        passes.append(1)
        yield pl.DataFrame({"raw": [978_300_760, 1_046_454_590]})

    log = register_io_source(read, schema={"raw": pl.Int64})
    assert choose_reader(LocalRows(log), "raw", "when", ColumnSettings()).kind == "timestamp"
    assert len(passes) == 1


@pytest.mark.parametrize("scale", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("form", [int, str])
def test_plausible_times_since_1970_become_milliseconds(scale: int, form: type) -> None:
    values = [form(moment * scale) for moment in (978_300_760, 1_046_454_590)]
    assert _read(values) == ("timestamp", [978_300_760_000, 1_046_454_590_000])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 5, None], [0, 5, None]),
        (["3", "-1"], [3, -1]),
        ([1.0, None, 3.0], [1, None, 3]),
        ([0.5, float("inf"), 1.0], [0.5, None, 1.0]),
        ([Decimal("3"), Decimal("4")], [3, 4]),
        # Beyond 64 bits, which spoils no other.
        ([1e300, 5.0], [None, 5]),
        (["1e30", "5"], [None, 5]),
        (["99999999999999999999", "5"], [None, 5]),
        (pl.Series([2**63, 5], dtype=pl.UInt64()), [None, 5]),
    ],
)
def test_other_numbers_stay_numbers_of_their_kind(
    values: Sequence[object] | pl.Series, expected: list[object]
) -> None:
    assert _read(values) == ("number", expected)


LAST_DAY = (2020, 12, 31)


@pytest.mark.parametrize(
    ("values", "when"),
    [
        ([Decimal("978300760.25"), None], [(2000, 12, 31, 22, 12, 40, 250_000), None]),
        ([datetime(2020, 1, 1, 10, 30)], [(2020, 1, 1, 10, 30)]),
        (["43831.4375", "43831"], [(2020, 1, 1, 10, 30), (2020, 1, 1)]),  # of a spreadsheet
        ([date(2020, 1, 2)], [(2020, 1, 2)]),
        (pl.Series([datetime(2020, 7, 1, 10)]).dt.replace_time_zone("Europe/Berlin"), [(2020, 7, 1, 8)]),
        (["2020-01-01", "2020-01-01 10:30", "later"], [(2020, 1, 1), (2020, 1, 1, 10, 30), None]),
        (["2020-01-01T10:30:15", None], [(2020, 1, 1, 10, 30, 15), None]),
        (["2020-01-01T10:30:15.250Z"], [(2020, 1, 1, 10, 30, 15, 250_000)]),
        (["2020-01-01T10:30:15+02:00"], [(2020, 1, 1, 8, 30, 15)]),
        (["2015-06-02 10:30:00 UTC", "2015-06-02T10:30:00Z"], [(2015, 6, 2, 10, 30)] * 2),
        # Years of two digits are of this age.
        (["25.03.21", "02.06.15 10:30"], [(2021, 3, 25), (2015, 6, 2, 10, 30)]),
        (["6/2/15", "6/25/15"], [(2015, 6, 2), (2015, 6, 25)]),
        (["05/24/2015 03:15 PM", "5/24/2015 12:05:07 am"], [(2015, 5, 24, 15, 15), (2015, 5, 24, 0, 5, 7)]),
        (["24.05.15 3:15:10.250PM"], [(2015, 5, 24, 15, 15, 10, 250_000)]),
        (["31/05/2015", "26/06/15"], [(2015, 5, 31), (2015, 6, 26)]),
        (["31/05/2015", "2/6/15"], [(2015, 5, 31), (2015, 6, 2)]),  # the other date tells the order
        (["1/12/2020 8:26", "13/12/2020 9:00"], [(2020, 12, 1, 8, 26), (2020, 12, 13, 9)]),
        (["1/12/2020 8:26", "1/13/2020 9:00"], [(2020, 1, 12, 8, 26), (2020, 1, 13, 9)]),
        (
            ["2020-12-31", "2020/12/31", "31.12.2020 00:00", "12/31/2020", "1609372800", "20201231"],
            [LAST_DAY] * 6,
        ),
    ],
)
def test_dates_and_times_in_all_their_shapes_become_utc(
    values: Sequence[object] | pl.Series, when: list[tuple[int, ...] | None]
) -> None:
    assert _read(values) == ("timestamp", [None if one is None else _ms(*one) for one in when])


def test_a_stated_unit_or_format_is_believed() -> None:
    assert _read([5], time_unit="seconds") == ("timestamp", [5000])
    assert _read([5_000], time_unit="microseconds") == ("timestamp", [5])
    assert _read([1_046_454_590], time_unit="number") == ("number", [1_046_454_590])
    assert _read([1.25], time_unit="seconds") == ("timestamp", [1250])
    assert _read(["1/12/2020"], time_format="%d/%m/%Y")[1] == [_ms(2020, 12, 1)]
    formats, texts = ["%a %d %b %Y", "%d/%m/%Y"], ["31/12/2020", "Thu 31 Dec 2020", "2020-12-31"]
    assert _read(texts, time_format=formats)[1] == [_ms(*LAST_DAY)] * 3  # the last one is found


def test_a_few_absurd_values_say_nothing_of_the_others() -> None:
    """An impossible time among valid ones is unreadable; an unlikely one stays."""
    good = [1_046_454_590 + place for place in range(30)]
    kind, values = _read([*good, 10**17, 0])
    assert kind == "timestamp"
    assert values == [*(moment * 1000 for moment in good), None, 0]
    assert _read([1_046_454_590, 3, 4, 5])[0] == "number"


def test_each_number_is_read_in_the_unit_in_which_it_is_a_time_and_the_note_says_so() -> None:
    """As in a log whose later files have milliseconds."""
    column = pl.Series("raw", [1_700_000_001, 1_700_000_003, 1_700_000_002_000, 5])
    reader = _reader(column.head(3))
    found = column.to_frame().select(reader.value).to_series().to_list()
    assert found == [1_700_000_001_000, 1_700_000_003_000, 1_700_000_002_000, 5_000]
    assert "seconds (66.7%) and milliseconds (33.3%) since 1970: each" in reader.note
    assert _read(column.to_list()[:3], time_unit="seconds")[1][2] is None


def test_times_as_32_bit_floats_are_noted() -> None:
    times = pl.Series([978_300_760.0, 1_046_454_590.0])
    notes = [_reader(times.cast(dtype)).note for dtype in (pl.Float64, pl.Float32)]
    assert ["32-bit" in note for note in notes] == [False, True]


@pytest.mark.parametrize("form", [int, float, str, "{}.0".format], ids=["int", "float", "str", "text"])
def test_dates_written_as_numbers_are_dates(form: Callable[[int], object]) -> None:
    values = [form(number) for number in (20240131, 20240201, 20231231)]
    days = [_ms(2024, 1, 31), _ms(2024, 2, 1), _ms(2023, 12, 31)]
    assert _read(values) == ("timestamp", days)
    assert _read([form(20240131093015), form(202402010000)])[1] == [_ms(2024, 1, 31, 9, 30, 15), days[1]]
    assert _read([form(20241301), form(20240100)])[0] == "number"  # no months and days
    assert _read(values, time_unit="number")[0] == "number"
    reader = _reader(pl.Series(values))
    assert [parse_time(moment, reader) for moment in ("2024-02-01", 20240201, "20240201")] == [days[1]] * 3


@pytest.mark.parametrize(
    "form", [int, str, datetime.fromtimestamp, lambda time: datetime.fromtimestamp(time, UTC).isoformat()]
)
def test_times_far_from_most_others_are_those_of_wrong_clocks(form: Callable[[int], object]) -> None:
    """But not old ones whose unit is stated, or more than a few, which are of an old log."""
    usual, wrong = [1_700_000_000 + place for place in range(40)], [-2_000_000_000, 4, 2_900_000_000]
    reader = _reader(pl.Series([form(time) for time in (*usual, wrong[0], wrong[2])]))
    assert reader.likely is not None
    first, last = reader.likely
    assert all(first <= time * 1000 <= last for time in usual)
    assert not any(first <= time * 1000 <= last for time in wrong)
    some = _reader(pl.Series([form(time) for time in (*usual, *wrong[:2] * 2, wrong[2])])).likely
    assert some is not None
    assert [some[0] <= time * 1000 <= some[1] for time in wrong] == [True, True, False]
    stated = _reader(pl.Series(usual), time_unit="seconds").likely
    assert stated is not None
    assert [stated[0] <= time * 1000 <= stated[1] for time in wrong] == [True, True, False]


@pytest.mark.parametrize(
    "form", [int, str, datetime.fromtimestamp, lambda time: str(date.fromtimestamp(time))]
)
def test_times_of_the_future_are_kept_and_told_only_where_half_and_more_are_unlikely(
    form: Callable[[int], object],
) -> None:
    usual, later = [1_700_000_000] * 40, [2_900_000_000] * 40
    few, half = (_reader(pl.Series([form(time) for time in (*usual, *later[:many])])) for many in (17, 40))
    assert few.likely is not None
    assert few.doubt == ""
    assert half.likely is None
    assert half.doubt.startswith(
        "40 of 80 times of column 'when' lie beyond tomorrow, the latest on 2061-11-2"
    )


def test_an_old_log_is_read_without_a_word() -> None:
    reader = _reader(pl.Series([date(1950, 1, 1), date(1989, 12, 31), date(2001, 1, 1)]))
    assert (reader.likely, reader.doubt) == (None, "")


@pytest.mark.parametrize("form", [int, float, str])
def test_a_stated_unit_that_puts_most_numbers_beyond_all_calendars_is_refused(
    form: Callable[[int], object],
) -> None:
    values = [form(1_700_000_000_000 + place) for place in range(3)]
    refusal = (
        "'seconds' does not fit the numbers of column 'when': 1700000000001 is in the year 55,840 as "
        "seconds, and in 2023 as milliseconds; give --time-unit milliseconds, or omit it"
    )
    with pytest.raises(ColumnError, match=refusal):
        _read(values, time_unit="seconds")


@pytest.mark.parametrize(
    ("unit", "scale"), [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)]
)
@pytest.mark.parametrize("form", [int, float, str])
def test_times_outside_the_years_that_calendars_know_are_unreadable(
    unit: str, scale: int, form: type
) -> None:
    first, last = -62_135_596_800, 253_402_300_799  # 0001-01-01 and 9999-12-31T23:59:59
    values = [form(moment * scale) for moment in (first, last, first - 1, last + 1, 2 * 10**18 // scale)]
    expected = [first * 1000, last * 1000, None, None, None]
    assert _read(values, time_unit=unit) == ("timestamp", expected)


def test_lists_order_nothing() -> None:
    with pytest.raises(ColumnError, match=r"'when' holds List\(Int64\), which does not order events"):
        _read([[1]])


def test_dates_cut_times_and_numbers_cut_in_the_unit_of_their_column() -> None:
    seconds = _reader(pl.Series([1_700_000_000]))
    dates = _reader(pl.Series([date(2020, 1, 1)]))
    for reader in (seconds, dates):
        assert parse_time("2020-01-01 10:30", reader) == _ms(2020, 1, 1, 10, 30)
    assert parse_time("2020-01-01T10:30:00+02:00", dates) == _ms(2020, 1, 1, 8, 30)
    assert parse_time(1_700_004_000, seconds) == 1_700_004_000_000
    assert parse_time("1700004000.5", seconds) == 1_700_004_000_500
    assert parse_time(1_700_004_000_000, _reader(pl.Series([1_700_000_000_000]))) == 1_700_004_000_000


def test_plain_numbers_are_cut_at_numbers_as_they_are() -> None:
    numbers = _reader(pl.Series([3, 4]))
    assert [parse_time(moment, numbers) for moment in (7, "3", " 2.5")] == [7, 3, 2.5]
    with pytest.raises(ColumnError, match="give a number"):
        parse_time("nan", numbers)


@pytest.mark.parametrize("moment", ["soon", "nan", 1e30, "inf"])
def test_what_is_no_moment_is_refused(moment: str | float) -> None:
    with pytest.raises(ColumnError, match=r"is not a date or time \('when' holds seconds since 1970\)"):
        parse_time(moment, _reader(pl.Series([1_700_000_000])))
    with pytest.raises(ColumnError, match="write it like 2024-05-01"):
        parse_time(20245001, _reader(pl.Series([date(2020, 1, 1)])))


MAY = datetime(2024, 5, 1, 12, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T12:30",
        "2024-05-01 12:30",
        "2024-05-01T14:30+02:00",
        f"{MAY}",
        f"{MAY * 1e3:.0f}",
        MAY * 1e6,
        f"{MAY * 1e9:.0f}",
        "20240501T1230",
    ],
)
def test_a_moment_is_read_as_milliseconds(text: str | float) -> None:
    assert parse_moment(text) == MAY * 1000


@pytest.mark.parametrize("text", ["yesterday", "", "5", "-1", "nan", "2024-13-01"])
def test_other_texts_are_no_moments(text: str) -> None:
    assert parse_moment(text) is None
