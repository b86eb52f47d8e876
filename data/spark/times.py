"""The order column as a Spark column: `data.reading.times.TimeReader` without Polars."""

import re

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from turret.data.moments import PER_SECOND
from turret.data.reading.times import UTC_MARK, YEAR_1, YEAR_10000, Dates, Numbers, TimeReader
from turret.data.spark.expressions import TEXTS, finite, integer, number, stripped, whole

_DAY = 86_400_000
# The directives of `strptime` that are read here, each with its pattern.
_DIRECTIVES = {
    "%Y": r"\+?(?<year>[0-9]{1,4})",
    "%m": r"(?<month>[0-9]{1,2})",
    "%d": r"(?<day>[0-9]{1,2})",
    "%H": r"(?<hour>[0-9]{1,2})",
    "%M": r"(?<minute>[0-9]{1,2})",
    "%S": r"(?<second>[0-5]?[0-9]|60)",
    "%.f": r"(?:\.(?<fraction>[0-9]+))?",
    "%#z": r"\s*(?<offset>[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)",
    " ": r"\s*",
}
_TOKEN = re.compile(r"%#z|%\.f|%.|.")


def can_read(time: TimeReader, dtype: pl.DataType) -> bool:
    """Tell whether `time_value` reads a column of this type in Polars as the reader does."""
    if isinstance(time.form, Dates):
        return all(_pattern(one) is not None for one in time.form.formats)
    if time.form is None and time.kind == "timestamp":
        return dtype == pl.Date or (isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns")
    return dtype in TEXTS or dtype.is_float() or (dtype.is_integer() and dtype != pl.UInt64)


def time_value(time: TimeReader, raw: Column, dtype: pl.DataType) -> Column:
    """Return the times as `TimeReader.value` does; null where a value is none."""
    if isinstance(time.form, Numbers):
        return _numeric(time.form, raw, dtype)
    if isinstance(time.form, Dates):
        return _parsed(time.form, raw)
    if dtype == pl.Date:
        return F.unix_date(raw).cast("long") * _DAY
    return F.unix_millis(raw.cast("timestamp"))


def _numeric(form: Numbers, raw: Column, dtype: pl.DataType) -> Column:
    if dtype in TEXTS:
        value = integer(stripped(raw)) if form.is_integer else number(stripped(raw), "double")
    else:
        value = raw.cast("long") if form.is_integer else finite(raw.cast("double"))
    if form.unit == "number":
        return value if form.is_integer or not form.is_whole else whole(value)
    scale = PER_SECOND[form.unit]
    value = F.when((value >= YEAR_1 * scale) & (value < YEAR_10000 * scale), value)
    if not form.is_integer:
        return F.rint(value * 1000 / scale).cast("long")
    # An exact division that rounds down; that of columns is one of doubles.
    return F.unix_millis(F.timestamp_micros(value)) if scale > 1000 else value * (1000 // scale)


def _parsed(form: Dates, raw: Column) -> Column:
    text = stripped(raw)
    if form.is_loose:
        text = F.regexp_replace(F.regexp_replace(text, UTC_MARK, ""), "^([^T]*)T", "$1 ")
    return F.coalesce(*(_in_format(text, one) for one in form.formats))


def _in_format(text: Column, time_format: str) -> Column:
    """Parse texts in one `strptime` format as milliseconds since 1970, UTC."""
    pattern = _pattern(time_format) or ""
    names = re.findall(r"\(\?<([a-z]+)>", pattern)
    parts = {name: F.regexp_extract(text, pattern, group) for group, name in enumerate(names, 1)}

    def padded(name: str, width: int = 2) -> Column:
        return F.lpad(parts.get(name, F.lit("")), width, "0")

    day = F.concat_ws("-", padded("year", 4), padded("month"), padded("day"))
    clock = F.concat_ws(":", padded("hour"), padded("minute"), F.lit("00"))
    value = F.unix_millis(F.concat_ws(" ", day, clock).try_cast("timestamp"))
    if "second" in parts:  # added, as 60 is a leap second
        value = value + parts["second"].try_cast("long") * 1000
    if "fraction" in parts:
        value = value + F.rpad(F.substring(parts["fraction"], 1, 3), 3, "0").cast("long")
    if "offset" in parts:
        digits = F.rpad(F.regexp_replace(parts["offset"], "[:+-]", ""), 4, "0")
        hours, minutes = (F.substring(digits, at, 2).try_cast("long") for at in (1, 3))
        ahead = (hours * 60 + minutes) * 60_000
        value = value - F.when(parts["offset"].startswith("-"), -ahead).otherwise(ahead)
    return F.when(text.rlike(pattern), value)


def _pattern(time_format: str) -> str | None:
    """Return the regular expression of a format, or None for one that is not read here."""
    tokens = _TOKEN.findall(time_format)
    directives = [token for token in tokens if token.startswith("%")]
    has_clock = "%H" in directives and "%M" in directives
    if (
        not {"%Y", "%m", "%d"} <= set(directives) <= _DIRECTIVES.keys()
        or len(set(directives)) < len(directives)
        or (not has_clock and {"%H", "%M", "%S", "%.f"} & set(directives))
        or ("%.f" in directives and "%S" not in directives)
    ):
        return None
    # (?U): white space of Unicode.
    return "(?U)^" + "".join(_DIRECTIVES.get(token, re.escape(token)) for token in tokens) + "$"
