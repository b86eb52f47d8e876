"""Parsing of the order column: dates, times and numbers as sortable numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import polars as pl

from turret.data.errors import ColumnError, brief
from turret.data.moments import PER_SECOND, YEAR_1990, YEAR_2100, as_number, parse_moment
from turret.data.progress import counted
from turret.data.reading.columns import ONE_ROW_AN_EVENT
from turret.data.reading.numbers import digits_behind, is_rounded
from turret.data.reading.source_settings import ColumnSettings
from turret.data.rows import Rows

TIME = "time"
NUMBERS = "numbers since 1970"
"""The form of texts that are seconds, milliseconds and so on, each in its own unit."""

_SAMPLE = 10_000
_MIN_SHARE = 0.9  # of values that fit a unit
_MIN_MODERN = 0.95  # of times until tomorrow: if so many are from 1990 on, earlier times are wrong
_DAY, _YEAR = 86_400, 31_556_952  # seconds
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # seconds since 1970; the range of datetime
_SECONDS = 9  # digits behind the point of times since 1970, in any unit, to tell whole seconds
_SERIAL_1970 = 25_569  # days from 1899-12-30, from which spreadsheets count
_CLOCKS = ("", " %H:%M", " %H:%M:%S%.f")
_HALF_DAY = r"(?i)[ap]m$"
_HALF_DAY_CLOCKS = (" %I:%M %p", " %I:%M:%S%.f %p")
UTC_MARK = r"(?:Z| UTC)$"
_OFFSET = " %H:%M:%S%.f%#z"
_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%d.%m.%y"),
)
_SHORT_YEAR = r"^\d{1,2}[-/.]\d{1,2}[-/.]\d{1,2}(?:\D|$)"  # %Y takes such a year for the first century
_DAY_OR_MONTH = {
    "%d/%m/%Y": "%m/%d/%Y",
    "%m/%d/%Y": "%d/%m/%Y",
    "%d/%m/%y": "%m/%d/%y",
    "%m/%d/%y": "%d/%m/%y",
}
# Dates as numbers, such as 20240501 and 20240501123000.
_DIGITS = ("%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S")


@dataclass(frozen=True)
class TimeReader:
    """The conversion of the order column to numbers.

    `value` is Int64 milliseconds since 1970 (UTC) for a timestamp, Int64 or Float64 for a number, and null
    where the column is null or does not parse. `note` describes the format. `per_second` is the number of
    units of a numeric timestamp per second, else None. `likely` are the bounds in milliseconds: times outside
    are times of wrong clocks. `doubt` is a sentence on times of the future inside the bounds, empty for none.
    `forms` are the formats of texts: formats of days, and NUMBERS.
    """

    kind: Literal["timestamp", "number", "position"]
    value: pl.Expr
    note: str
    per_second: int | None = None
    likely: tuple[int, int] | None = None
    doubt: str = ""
    forms: tuple[str, ...] = ()


def choose_reader(
    rows: Rows, column: str, name: str, settings: ColumnSettings, forms: Sequence[str] = ()
) -> TimeReader:
    """Choose the reader of a column of `rows`, `name` in the source, by its type, first values and range.

    Texts are read in the stated formats, in the formats of the first values, and in `forms`. Where a unit or
    a format is stated, only a time in the future counts as the time of a wrong clock. Raises ColumnError when
    the column holds neither times nor numbers, when day and month are ambiguous, or when the settings
    contradict the values.
    """
    dtype = rows.schema()[column]
    value = pl.col(column)
    if dtype.is_temporal() and dtype not in (pl.Time, pl.Duration()):
        _refuse_unit(settings, name)
        if isinstance(dtype, pl.Datetime) and dtype.time_zone:
            value = value.dt.convert_time_zone("UTC")
        milliseconds = value.cast(pl.Datetime("ms")).dt.epoch("ms")
        reader = TimeReader("timestamp", milliseconds, f"{name!r} holds {dtype}")
        return _without_wrong_clocks(reader, rows, name)
    if dtype.is_numeric() and not settings.time_format:
        return _number_reader(rows, name, value, dtype, settings)
    if dtype.is_integer() or dtype in (pl.String, pl.Categorical, pl.Enum):
        return _text_reader(rows, value.cast(pl.String).str.strip_chars(), name, settings, forms)
    remedy = ONE_ROW_AN_EVENT if dtype.is_nested() else "name another with --time"
    raise ColumnError(f"column {name!r} holds {brief(dtype)}, which does not order events; {remedy}")


def further_forms(reader: TimeReader, unread: pl.Series, name: str) -> tuple[str, ...]:
    """Return the formats of texts that `reader` can't read, as in a later file or a later kind of events.

    Day and month keep the order in which other texts are read. Raises ColumnError where this order is unknown
    and ambiguous.
    """
    sample = unread.cast(pl.String).str.strip_chars().drop_nulls().to_frame(TIME)
    known = {*reader.forms, *(_DAY_OR_MONTH.get(days, "") for days in reader.forms)}
    counts = {days: count for days, count in _day_counts(sample).items() if days not in known}
    formats = _formats(sample, counts, name) if any(counts.values()) else []
    number = pl.col(TIME).cast(pl.Int64, strict=False)
    # A reader of numbers in some units has already tried the other units, or the units are stated.
    are_numbers = (
        reader.per_second is None
        and sample.select(_in_own_unit(number, list(PER_SECOND), True).count()).item() > 0
    )
    return (*formats, *[NUMBERS] * (are_numbers and NUMBERS not in known))


def parse_time(setting: str | float, time: TimeReader) -> float:
    """Parse a time of the configuration with the reader of the order column.

    A text may hold a number, which is in the unit of the column; other texts are dates or times. Raises
    ColumnError for anything else, and for a date if the column holds plain numbers.
    """
    number = as_number(setting)
    if time.kind == "number":
        if number is None or not math.isfinite(number):
            raise ColumnError(
                f"the order column holds numbers, so {setting!r} can't split the events; give a number, or "
                "the unit of the column with --time-unit"
            )
        return number
    if number is None or time.per_second is None:
        value = parse_moment(setting)
    else:
        value = number * 1000 / time.per_second
    if value is None or not YEAR_1 * 1000 <= value < YEAR_10000 * 1000:
        raise ColumnError(
            f"{setting!r} is not a date or time ({time.note}); write it like 2024-05-01 or 2024-05-01 12:30"
        )
    return float(value)


def _refuse_unit(settings: ColumnSettings, column: str) -> None:
    if settings.time_unit != "auto":
        raise ColumnError(
            f"time_unit = {settings.time_unit!r} is for numbers, but column {column!r} holds dates; omit it"
        )


def _likely_times() -> tuple[int, int]:
    """Return the bounds of event times in milliseconds: from 1990 to tomorrow, for clocks of any zone."""
    return YEAR_1990 * 1000, int((datetime.now(UTC).timestamp() + _DAY) * 1000)


def _no_future() -> tuple[int, int]:
    return YEAR_1 * 1000, _likely_times()[1]


def _without_wrong_clocks(reader: TimeReader, rows: Rows, name: str) -> TimeReader:
    """Set the bounds of likely times if more than half of the times are likely; else doubt future times.

    An archive may begin before 1990, so that year is a bound only where nearly all times are later.
    """
    (first, last), time = _likely_times(), reader.value
    counts = rows.collect(
        lambda frame: frame.select(
            total=time.count(),
            likely=time.is_between(first, last).sum(),
            future=(time > last).sum(),
            newest=time.max(),
        )
    )
    sums, latest = pl.sum("total", "likely", "future"), pl.max("newest")
    total, likely, future, newest = counts.select(sums, latest).row(0)
    if 2 * likely > total:
        is_modern = likely >= _MIN_MODERN * (total - future)
        return replace(reader, likely=(first if is_modern else YEAR_1 * 1000, last))
    if not future:
        return reader
    day = datetime.fromtimestamp(min(newest // 1000, YEAR_10000 - 1), UTC)
    doubt = (
        f"{future:,} of {counted(total, 'time')} of column {name!r} lie beyond tomorrow, the latest on "
        f"{day:%Y-%m-%d}, and are kept, as half and more of them are not between 1990 and tomorrow; if a "
        "clock was wrong, correct these times or leave their rows out"
    )
    return replace(reader, doubt=doubt)


_COARSE = (
    " as 32-bit floats, in which times of one or two minutes are equal; write the column as integers or "
    "64-bit floats, or the events of such a time keep the order of the file"
)


def _number_reader(
    rows: Rows, name: str, value: pl.Expr, dtype: pl.DataType, settings: ColumnSettings
) -> TimeReader:
    is_integer = dtype.is_integer()
    # Narrower integers would overflow in milliseconds.
    value = value.cast(pl.Int64 if is_integer else pl.Float64, strict=False)
    finite = value if is_integer else pl.when(value.is_finite()).then(value)
    shares: dict[str, float] = {settings.time_unit: 1.0}
    units, likely = list[str](), _likely_times()
    if settings.time_unit == "auto":
        least, most = _ends(rows, finite)
        for unit, scale in PER_SECOND.items() if least is not None else ():
            if YEAR_1990 * scale <= least <= most <= likely[1] / 1000 * scale:
                units.append(unit)
        # In nearly all logs, the range shows that all times are likely in one unit.
        shares = {units[0]: 1.0} if units else _unit_shares(rows, finite)
    elif settings.time_unit != "number":
        _refuse_other_unit(rows.head(_SAMPLE), finite, settings.time_unit, name)
    if sum(shares.values()) < _MIN_SHARE:
        is_date = _from_digits(value).is_between(YEAR_1990 * 1000, YEAR_2100 * 1000)
        known = is_date.fill_null(False).filter(finite.is_not_null())
        if _share(rows.head(_SAMPLE), known) >= _MIN_SHARE:
            note = f"{name!r} holds dates written as numbers, such as 20240501"
            return _without_wrong_clocks(TimeReader("timestamp", _from_digits(value), note), rows, name)
        shares = {"number": 1.0}
    unit = next(iter(shares))
    if unit == "number":
        return _plain_reader(rows, name, finite, is_integer)
    time, note = _in_unit(value, unit, is_integer), f"{name!r} holds {unit} since 1970"
    if dtype in (pl.Float16, pl.Float32):
        note += _COARSE
    if len(shares) > 1:
        shown = " and ".join(f"{unit} ({share:.1%})" for unit, share in shares.items())
        note = (
            f"{name!r} holds {shown} since 1970: each value is read in its own unit; --time-unit states one"
        )
        time = pl.coalesce(_in_own_unit(value, list(shares), is_integer), time)
    reader = TimeReader("timestamp", time, note, PER_SECOND[unit])
    if settings.time_unit != "auto":
        return replace(reader, likely=_no_future())
    return replace(reader, likely=likely) if units else _without_wrong_clocks(reader, rows, name)


def _plain_reader(rows: Rows, name: str, finite: pl.Expr, is_integer: bool) -> TimeReader:
    """Return the reader of numbers in no unit: days as spreadsheets count them, or plain numbers."""
    is_whole = is_integer or _holds(rows, finite == finite.floor())
    number = finite.cast(pl.Int64 if is_whole else pl.Float64, strict=False)
    first, last = (seconds / 86_400 + _SERIAL_1970 for seconds in (YEAR_1990, YEAR_2100))
    serial = number.is_between(first, last)
    if not is_whole and _share(rows, serial) >= _MIN_SHARE:
        time = ((number - _SERIAL_1970) * 86_400_000).round().cast(pl.Int64)
        days = "dates as a spreadsheet counts them, in days since 1899-12-30"
        note = f"{name!r} holds numbers that are {days}"
        return _without_wrong_clocks(TimeReader("timestamp", time, note), rows, name)
    return TimeReader("number", number, f"{name!r} holds plain numbers{_as_days(rows, number)}")


def _refuse_other_unit(sample: Rows, number: pl.Expr, stated: str, name: str) -> None:
    """Raise ColumnError where the median is beyond all calendars in the stated unit, but not in another."""
    median = sample.collect(lambda frame: frame.select(number.quantile(0.5))).item()
    if median is None or median < YEAR_10000 * PER_SECOND[stated]:
        return
    for unit, scale in PER_SECOND.items():
        if YEAR_1990 * scale <= median <= YEAR_2100 * scale:
            year, likely = (1970 + int(median / factor / _YEAR) for factor in (PER_SECOND[stated], scale))
            raise ColumnError(
                f"time_unit = {stated!r} does not fit the numbers of column {name!r}: {median:.0f} is in the "
                f"year {year:,} as {stated}, and in {likely} as {unit}; give --time-unit {unit}, or omit it"
            )


def _as_days(rows: Rows, number: pl.Expr) -> str:
    """Return a hint at days as spreadsheets count them, where all numbers would be likely times."""
    seconds = [(end - _SERIAL_1970) * _DAY for end in _ends(rows, number) if end is not None]
    first, last = _likely_times()
    if not seconds or not first <= seconds[0] * 1000 <= seconds[1] * 1000 <= last:
        return ""
    shown = " to ".join(f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d}" for second in seconds)
    return f"; if they are days as a spreadsheet counts them, here {shown}, save the column as dates"


def _holds(rows: Rows, condition: pl.Expr) -> bool:
    return bool(rows.collect(lambda frame: frame.select(condition.all().alias("all")))["all"].all())


def _share(rows: Rows, condition: pl.Expr) -> float:
    """Return the share of the values that meet a condition, 0 without a value."""
    counts = rows.collect(lambda frame: frame.select(met=condition.sum(), total=condition.count()))
    met, total = counts.sum().row(0)
    return float(met / total) if total else 0.0


def _ends(rows: Rows, number: pl.Expr) -> tuple[Any, Any]:
    """Return the least and the largest value, or None twice."""
    ends = rows.collect(lambda frame: frame.select(least=number.min(), most=number.max()))
    return ends["least"].min(), ends["most"].max()


def _in_unit(value: pl.Expr, unit: str, is_integer: bool) -> pl.Expr:
    """Convert numbers of the years 1 to 9999 to whole milliseconds; null for others."""
    scale = PER_SECOND[unit]
    # These years in nanoseconds lie outside 64 bits.
    first, last = max(YEAR_1 * scale, -(2**63)), min(YEAR_10000 * scale, 2**63 - 1)
    value = pl.when(value.is_between(first, last, closed="left")).then(value)
    if not is_integer:
        return (value * 1000 / scale).round().cast(pl.Int64)
    # Multiplying first would overflow for microseconds.
    return value * (1000 // scale) if scale <= 1000 else value // (scale // 1000)


def _in_own_unit(value: pl.Expr, units: Sequence[str], is_integer: bool) -> pl.Expr:
    """Convert numbers that are times between 1990 and 2100 in one of the units; null for others."""
    plausible = {unit: pl.when(_is_plausible(value, unit)).then(value) for unit in units}
    return pl.coalesce(_in_unit(number, unit, is_integer) for unit, number in plausible.items())


def _is_plausible(value: pl.Expr, unit: str) -> pl.Expr:
    return value.is_between(YEAR_1990 * PER_SECOND[unit], YEAR_2100 * PER_SECOND[unit])


def _from_digits(value: pl.Expr) -> pl.Expr:
    """Parse the digits of numbers as dates, null for others."""
    text = value.cast(pl.Int64, strict=False).cast(pl.String)
    return pl.coalesce(_strptime(text, form) for form in _DIGITS)


def _unit_shares(rows: Rows, finite: pl.Expr) -> dict[str, float]:
    """Return the shares of times from 1990 to 2100 by unit, largest first."""
    fits = {unit: _is_plausible(finite, unit).sum() for unit in PER_SECOND}
    counts = rows.collect(lambda frame: frame.select(finite.count().alias("total"), **fits)).sum()
    total, *of_units = counts.row(0)
    shares = {unit: count / total for unit, count in zip(fits, of_units, strict=True) if count}
    return {unit: shares[unit] for unit in sorted(shares, key=shares.__getitem__, reverse=True)}


def _text_reader(
    rows: Rows, text: pl.Expr, name: str, settings: ColumnSettings, forms: Sequence[str]
) -> TimeReader:
    stated = [_strptime(text, form) for form in settings.time_format or ()]
    is_stated = pl.any_horizontal(pl.lit(False), *(time.is_not_null() for time in stated))
    sample = rows.first(
        _SAMPLE, lambda frame: frame.select(text.alias(TIME), is_read=is_stated).drop_nulls(TIME)
    )
    is_read = bool(stated) and sample["is_read"].any()
    sample = sample.filter(~pl.col("is_read"))
    if sample[TIME].str.contains_any(["e", "E"]).any():
        text, sample = _without_rounded(text, sample, name)
    numbers = sample[TIME].cast(pl.Float64, strict=False).count()
    counts = _day_counts(sample) if numbers < len(sample) else {}  # no date is a number, too
    if not (any(counts.values()) or forms or stated):
        are_whole = sample[TIME].cast(pl.Int64, strict=False).count() == numbers
        dtype = pl.Int64() if are_whole else pl.Float64()
        return _number_reader(rows, name, text.cast(dtype, strict=False), dtype, settings)
    if not stated:
        _refuse_unit(settings, name)
    formats = [form for form in dict.fromkeys([*_formats(sample, counts, name), *forms]) if form != NUMBERS]
    # %y takes no year of four digits, but %Y takes a year of two digits.
    values = [*stated, *(_parse(text, days) for days in sorted(formats, key=lambda days: "%Y" in days))]
    shown = [*(settings.time_format or ()), *(f"{days} with or without a time" for days in formats)]
    note = f"{name!r} is read as {' or '.join(shown)}"
    if numbers or NUMBERS in forms:
        number = text.cast(pl.Int64, strict=False)
        values += [_in_own_unit(number, list(PER_SECOND), True), _from_digits(number)]
        note, formats = f"{note}, or as {NUMBERS}", [*formats, NUMBERS]
    reader = TimeReader("timestamp", pl.coalesce(values), note, forms=tuple(formats))
    if is_read:
        return replace(reader, likely=_no_future())
    bounds = _likely_times()
    if _share(rows.head(_SAMPLE), reader.value.is_between(*bounds)) == 1:  # all rows take longer
        return replace(reader, likely=bounds)
    return _without_wrong_clocks(reader, rows, name)


def _without_rounded(text: pl.Expr, sample: pl.DataFrame, name: str) -> tuple[pl.Expr, pl.DataFrame]:
    """Leave out the times that a spreadsheet wrote with six digits, which tell only hours or days.

    Raises ColumnError where these are all times of the sample.
    """
    rounded = sample.filter(is_rounded(pl.col(TIME)))
    if rounded.is_empty() or not sample.select((digits_behind(pl.col(TIME)) < _SECONDS).all()).item():
        return text, sample
    if len(rounded) == len(sample):
        raise ColumnError(
            f"the times of column {name!r} were rounded by a spreadsheet, as {rounded[TIME][0]}; export "
            "them from the source itself, or format the column as text or date before saving it"
        )
    return pl.when(~is_rounded(text)).then(text), sample.filter(~is_rounded(pl.col(TIME)))


def _day_counts(sample: pl.DataFrame) -> dict[str, int]:
    """Count the texts of a sample that each format of days reads."""
    full = sample.filter(~pl.col(TIME).str.contains(_SHORT_YEAR))
    return {
        days: (full if "%Y" in days else sample).select(_parse(pl.col(TIME), days).count()).item()
        for days in _DAYS
    }


def _formats(sample: pl.DataFrame, counts: dict[str, int], name: str) -> list[str]:
    """Return the formats of days in a sample, the most frequent first, with one order of day and month.

    Dates that fit both orders are read as other dates of the sample, if the other dates show the order.
    """
    formats = sorted((days for days in counts if counts[days]), key=counts.__getitem__, reverse=True)
    paired = [days for days in formats if days in _DAY_OR_MONTH]
    first = {days[:2] for days in paired if counts[days] > counts[_DAY_OR_MONTH[days]]}
    if len(first) == 1:
        formats = [days for days in formats if days not in paired or days[:2] in first]
    for days in formats:
        other = _DAY_OR_MONTH.get(days, "")
        if other in formats and counts[other] == counts[days]:
            example = sample.filter(_parse(pl.col(TIME), days).is_not_null())[TIME][0]
            raise ColumnError(
                f"the dates of column {name!r} (such as {example!r}) fit {days} and {other}; "
                "choose one with --time-format"
            )
    return [days for days in formats if counts[days] >= counts.get(_DAY_OR_MONTH.get(days, ""), 0)]


def _parse(text: pl.Expr, days: str) -> pl.Expr:
    """Parse dates with an optional time of 24 or 12 hours, fraction of a second and offset (default: UTC)."""
    plain = text.str.replace(UTC_MARK, "").str.replace("T", " ", literal=True)
    half_days = pl.when(plain.str.contains(_HALF_DAY)).then(
        plain
    )  # few logs have half days, and nulls cost nothing
    naive = [_strptime(plain, days + clock) for clock in _CLOCKS]
    naive += [_strptime(half_days, days + clock) for clock in _HALF_DAY_CLOCKS]
    aware = plain.str.strptime(pl.Datetime("ms", "UTC"), days + _OFFSET, strict=False)
    return pl.coalesce(*naive, aware.dt.replace_time_zone(None).dt.epoch("ms"))


def _strptime(text: pl.Expr, time_format: str) -> pl.Expr:
    return text.str.strptime(pl.Datetime("ms"), time_format, strict=False).dt.epoch("ms")
