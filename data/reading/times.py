"""Parsing of the order column: dates, times and numbers as sortable numbers."""

import math
from dataclasses import dataclass
from typing import Literal

import polars as pl

from turret.data.errors import ColumnError
from turret.data.reading.schema import ColumnSettings

TIME = "time"

_SAMPLE = 10_000
_MIN_SHARE = 0.9  # of values that fit a unit
_YEAR_1990, _YEAR_2100 = 631_152_000, 4_102_444_800  # seconds since 1970
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # seconds since 1970; the range of datetime
PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000}
_CLOCKS = ("", " %H:%M", " %H:%M:%S%.f")
_OFFSET = " %H:%M:%S%.f%#z"
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y")


@dataclass(frozen=True)
class Numbers:
    """Numbers, of texts too, in `unit`; `is_integer`: read as integers, `is_whole`: all values are whole."""

    unit: str
    is_integer: bool
    is_whole: bool


@dataclass(frozen=True)
class Dates:
    """Texts in the first of some `strptime` formats that fits; `is_loose`: "T" and "Z" as in ISO 8601."""

    formats: tuple[str, ...]
    is_loose: bool


@dataclass(frozen=True)
class TimeReader:
    """The conversion of the order column to numbers.

    `value` is Int64 milliseconds since 1970 (UTC) for a timestamp, Int64 or Float64 for a number, and null
    where the column is null or does not parse. `note` describes the format. `per_second` is the number of
    units of a numeric timestamp per second, else None. `form` states `value` without Polars; None for
    columns of times and for the order of the rows.
    """

    kind: Literal["timestamp", "number", "position"]
    value: pl.Expr
    note: str
    per_second: int | None = None
    form: Numbers | Dates | None = None


def read_positions(row: str) -> TimeReader:
    """Use the row number as the order."""
    return TimeReader("position", pl.col(row).cast(pl.Int64), "the order of the rows")


def choose_reader(frame: pl.LazyFrame, column: str, name: str, settings: ColumnSettings) -> TimeReader:
    """Choose the reader of `frame[column]`, `name` in the source, by its type, first values and range.

    Raises ColumnError when the column holds neither times nor numbers, when day and month are ambiguous, or
    when the settings contradict the values.
    """
    dtype = frame.select(column).collect_schema()[column]
    if dtype.is_temporal() and dtype not in (pl.Time, pl.Duration()):
        _refuse_unit(settings, name, "dates")
        return TimeReader("timestamp", _milliseconds(pl.col(column), dtype), f"{name!r} holds {dtype}")
    if dtype.is_numeric():
        return _number_reader(frame, name, pl.col(column), dtype, settings)
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return _text_reader(frame, pl.col(column), name, settings)
    raise ColumnError(f"column {name!r} holds {dtype}, which does not order events; name another with --time")


def parse_time(setting: str | float, time: TimeReader) -> float:
    """Parse a time of the configuration with the reader of the order column.

    A text may hold a number, which is in the unit of the column; other texts are dates or times. Raises
    ColumnError for anything else, and for a date if the column holds plain numbers.
    """
    number = _finite(setting)
    if time.kind == "number":
        if number is None:
            raise ColumnError(
                f"the order column holds numbers, so {setting!r} can't split the events; give a number"
            )
        return number
    if number is None:
        value = pl.select(_parse(pl.lit(str(setting)), "%Y-%m-%d")).item()
    else:
        value = None if time.per_second is None else number * 1000 / time.per_second
    if value is None or not YEAR_1 * 1000 <= value < YEAR_10000 * 1000:
        raise ColumnError(
            f"{setting!r} is not a date or time ({time.note}); write it like 2024-05-01 or 2024-05-01 12:30"
        )
    return float(value)


def _finite(setting: str | float) -> float | None:
    try:
        number = float(setting)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse_unit(settings: ColumnSettings, column: str, content: str) -> None:
    if settings.time_unit != "auto":
        raise ColumnError(
            f"time_unit = {settings.time_unit!r} is for numbers, but column {column!r} holds {content}; "
            "omit it"
        )


def _milliseconds(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        value = value.dt.convert_time_zone("UTC")
    return value.cast(pl.Datetime("ms")).dt.epoch("ms")


def _number_reader(
    frame: pl.LazyFrame, name: str, value: pl.Expr, dtype: pl.DataType, settings: ColumnSettings
) -> TimeReader:
    # Narrower integers would overflow in milliseconds.
    value = value.cast(pl.Int64 if dtype.is_integer() else pl.Float64, strict=False)
    is_whole, likely = _survey(frame, value, dtype)
    unit = settings.time_unit if settings.time_unit != "auto" else likely
    form = Numbers(unit, dtype.is_integer(), is_whole)
    if unit == "number":
        finite = value if dtype.is_integer() else pl.when(value.is_finite()).then(value)
        number = finite.cast(pl.Int64 if is_whole else pl.Float64, strict=False)
        return TimeReader("number", number, f"{name!r} holds plain numbers", form=form)
    scale = PER_SECOND[unit]
    in_range = value.is_between(YEAR_1 * scale, YEAR_10000 * scale, closed="left")
    return TimeReader(
        "timestamp",
        _scaled(pl.when(in_range).then(value), scale, dtype.is_integer()),
        f"{name!r} holds {unit} since 1970",
        per_second=scale,
        form=form,
    )


def _scaled(value: pl.Expr, per_second: int, is_integer: bool) -> pl.Expr:
    """Convert units of 1 / `per_second` seconds to whole milliseconds."""
    if not is_integer:
        return (value * 1000 / per_second).round().cast(pl.Int64)
    # Multiplying first would overflow for microseconds.
    return value * (1000 // per_second) if per_second <= 1000 else value // (per_second // 1000)


def _survey(frame: pl.LazyFrame, value: pl.Expr, dtype: pl.DataType) -> tuple[bool, str]:
    """Return whether all values are whole, and the unit in which most are times between 1990 and 2100.

    Most, not all: outliers are bad rows.
    """
    finite = value if dtype.is_integer() else value.filter(value.is_finite())
    whole = pl.lit(True) if dtype.is_integer() else (finite == finite.floor()).all()
    shares = {
        unit: finite.is_between(_YEAR_1990 * scale, _YEAR_2100 * scale).mean()
        for unit, scale in PER_SECOND.items()
    }
    survey = frame.select(whole=whole, **shares).collect(engine="streaming").row(0, named=True)
    likely = next((unit for unit in PER_SECOND if (survey[unit] or 0.0) >= _MIN_SHARE), "number")
    return bool(survey["whole"]), likely


def _text_reader(frame: pl.LazyFrame, column: pl.Expr, name: str, settings: ColumnSettings) -> TimeReader:
    text = column.cast(pl.String).str.strip_chars()
    if settings.time_format is not None:
        value = text.str.strptime(pl.Datetime("ms"), settings.time_format, strict=False).dt.epoch("ms")
        form = Dates((settings.time_format,), is_loose=False)
        return TimeReader("timestamp", value, f"{name!r} is read as {settings.time_format}", form=form)
    sample = (
        frame.select(text.alias(TIME))
        .filter(pl.col(TIME).is_not_null())
        .head(_SAMPLE)
        .collect(engine="streaming")
    )
    numbers = _count(sample, pl.col(TIME).cast(pl.Float64, strict=False))
    dates = {days: _count(sample, _parse(pl.col(TIME), days)) for days in _DAYS}
    if numbers >= max(dates.values()):
        dtype = (
            pl.Int64()
            if _count(sample, pl.col(TIME).cast(pl.Int64, strict=False)) == numbers
            else pl.Float64()
        )
        return _number_reader(frame, name, text.cast(dtype, strict=False), dtype, settings)
    _refuse_unit(settings, name, "dates")
    best = [days for days, count in dates.items() if count == max(dates.values())]
    if len(best) > 1:
        raise ColumnError(
            f"the dates of column {name!r} (such as {sample[TIME][0]!r}) fit {' and '.join(best)}; "
            "choose one with --time-format"
        )
    return TimeReader(
        "timestamp",
        _parse(text, best[0]),
        f"{name!r} is read as {best[0]} with or without a time",
        form=Dates(tuple(best[0] + clock for clock in (*_CLOCKS, _OFFSET)), is_loose=True),
    )


def _count(sample: pl.DataFrame, value: pl.Expr) -> int:
    return int(sample.select(value.is_not_null().sum()).item())


def _parse(text: pl.Expr, days: str) -> pl.Expr:
    """Parse dates with an optional time, fraction of a second and offset (default: UTC)."""
    plain = text.str.replace("T", " ", literal=True).str.replace(r"Z$", "")
    naive = [plain.str.strptime(pl.Datetime("ms"), days + clock, strict=False) for clock in _CLOCKS]
    aware = plain.str.strptime(pl.Datetime("ms", "UTC"), days + _OFFSET, strict=False)
    return pl.coalesce(*naive, aware.dt.replace_time_zone(None)).dt.epoch("ms")
