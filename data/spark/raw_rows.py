"""The source rows of a log as a Spark frame: plain delimited text and Parquet, read in place."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from turret.data.events.events import PART
from turret.data.reading.tables import ROW, PlainText, Table
from turret.data.spark.exchange import given

_TYPES: dict[pl.DataType, T.DataType] = {
    pl.Boolean(): T.BooleanType(),
    pl.Int8(): T.ByteType(),
    pl.Int16(): T.ShortType(),
    pl.Int32(): T.IntegerType(),
    pl.Int64(): T.LongType(),
    pl.UInt8(): T.ShortType(),
    pl.UInt16(): T.IntegerType(),
    pl.UInt32(): T.LongType(),
    pl.Float32(): T.FloatType(),
    pl.Float64(): T.DoubleType(),
    pl.Date(): T.DateType(),
}
# Hadoop hides files of such names, can't check one with a colon, and takes others for patterns.
_UNUSUAL = re.compile(r"/[_.][^/]*$|:[^/]*$|[*?\[\]{}\\]")
_KEY, _NUMBER, _BASE = "__key", "__number", "__base"


def can_scan(table: Table) -> bool:
    """Tell whether Spark reads the files of a table: plain text and Parquet, not under unusual names.

    Rows are numbered by the names of their files, so all have to be in one folder.
    """
    files = (table.plain.path,) if table.plain else table.files if table.is_parquet else ()
    is_one_folder = len({file.parent for file in files}) == 1
    return is_one_folder and not any(_UNUSUAL.search(file.absolute().as_posix()) for file in files)


def raw_rows(
    session: SparkSession, parts: Sequence[tuple[int | None, Table]], names: Mapping[str, str], work: Path
) -> DataFrame:
    """Return the rows of all parts with ROW, PART and the columns `names` (by their names in the frame).

    `work` is a folder that the workers share.
    """
    frames = [
        _rows(session, table, names, work).withColumn(PART, F.lit(part).cast("byte")) for part, table in parts
    ]
    rows, *others = frames
    for other in others:
        rows = rows.unionByName(other)
    return rows


def _rows(session: SparkSession, table: Table, names: Mapping[str, str], work: Path) -> DataFrame:
    if table.plain is not None:
        return _lines(session, table.plain, names, work)
    return _parquet(session, table, names, work)


def _parquet(session: SparkSession, table: Table, names: Mapping[str, str], work: Path) -> DataFrame:
    types = table.frame.collect_schema()
    # Only the needed columns: of some types, such as times of day, Spark refuses the whole file.
    schema = T.StructType([T.StructField(name, _type(types[name])) for name in dict.fromkeys(names.values())])
    frame = session.read.schema(schema).parquet(*(str(file.absolute()) for file in table.files))
    columns = [_column(frame, name).alias(raw) for raw, name in names.items()]
    number = F.col("_metadata.row_index") + 1
    if len(table.files) == 1:
        return frame.select(number.alias(ROW), *columns)
    bases, before = {}, 0
    for file in table.files:
        bases[file.name] = before
        before += pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()
    # Spark writes some characters of a name as in a URL.
    found = [name for (name,) in frame.select("_metadata.file_name").distinct().collect()]
    numbered = frame.select(F.col("_metadata.file_name").alias(_KEY), number.alias(_NUMBER), *columns)
    return _with_rows(session, numbered, {name: bases[unquote(name)] for name in found}, work, *names)


def _lines(session: SparkSession, plain: PlainText, names: Mapping[str, str], work: Path) -> DataFrame:
    """Read the records of a file of lines."""
    lines = _numbered_lines(session, plain.path, work)
    line, first = F.col("line"), 2
    if not plain.has_header:
        # The first line may begin with a byte order mark.
        line, first = F.when(F.col(ROW) == 1, F.ltrim(line, F.lit("\ufeff"))).otherwise(line), 1
    # A line of empty fields alone is no record.
    is_record = F.ltrim(line, F.lit(plain.delimiter)) != ""
    fields = lines.where((F.col(ROW) >= first) & is_record).select(ROW, _fields(line, plain).alias("fields"))
    columns = {name: _value(F.get("fields", F.lit(at)), plain) for at, name in enumerate(plain.columns)}
    return fields.select(ROW, *(columns[name].alias(raw) for raw, name in names.items()))


def _numbered_lines(session: SparkSession, path: Path, work: Path) -> DataFrame:
    """Return the lines with ROW, which follows from a line's place in a block of the file."""
    lines = (
        session.read.option("lineSep", "\n")
        .text(str(path.absolute()))
        .select(
            F.col("_metadata.file_block_start").alias(_KEY),
            F.monotonically_increasing_id().alias(_NUMBER),
            F.regexp_replace("value", r"\r\z", "").alias("line"),
        )
    )
    blocks = lines.groupBy(_KEY).agg(F.min(_NUMBER), F.count("*")).orderBy(_KEY).collect()
    bases, before = {}, 1
    for block, first, count in blocks:
        bases[block] = before - first
        before += count
    return _with_rows(session, lines, bases, work, "line")


def _with_rows(
    session: SparkSession, numbered: DataFrame, bases: Mapping[Any, int], work: Path, *names: str
) -> DataFrame:
    """Return ROW, a row's number added to the base of its key, and the columns `names`."""
    table = pl.DataFrame({_KEY: list(bases), _BASE: list(bases.values())})
    path = work / f"bases.{len(list(work.iterdir()))}.parquet"
    rows = numbered.join(F.broadcast(given(session, table, path)), _KEY)
    return rows.select((F.col(_NUMBER) + F.col(_BASE)).alias(ROW), *names)


def _fields(line: Column, plain: PlainText) -> Column:
    """Divide a line of fields, which a quote encloses whole or is not in."""
    delimiter, quote = _escaped(plain.delimiter), _escaped(plain.quote)
    divided = F.split(line, delimiter, -1)
    if not plain.quote:
        return divided
    field = f"{delimiter}({quote}(?:[^{quote}]|{quote}{quote})*{quote}|[^{quote}{delimiter}]*)"
    quoted = F.regexp_extract_all(F.concat(F.lit(plain.delimiter), line), F.lit(field), 1)
    return F.when(line.contains(plain.quote), quoted).otherwise(divided)


def _value(field: Column, plain: PlainText) -> Column:
    """Return the value of a field, null for an empty one."""
    value = field
    if plain.quote:
        inner = F.regexp_replace(
            F.substring(field, F.lit(2), F.length(field) - 2),
            _escaped(plain.quote) * 2,
            _replacement(plain.quote),
        )
        value = F.when(field.startswith(plain.quote), inner).otherwise(field)
    return F.when(~_is_null(field, plain), value)


def _is_null(field: Column, plain: PlainText) -> Column:
    return field.isNull() | (field == "")


def _escaped(text: str) -> str:
    """Return the pattern of one character, also inside brackets."""
    return re.escape(text) if text == "\t" else "\\" + text if not text.isalnum() else text


def _replacement(quote: str) -> str:
    return "\\" + quote if quote in "$\\" else quote


def _column(frame: DataFrame, name: str) -> Column:
    """Return a column of a file; some writers store missing floats as NaN."""
    value = F.col("`" + name.replace("`", "``") + "`")
    is_float = isinstance(frame.schema[name].dataType, T.FloatType | T.DoubleType)
    return F.when(~F.isnan(value), value) if is_float else value


def _type(dtype: pl.DataType) -> T.DataType:
    """Return the type for Spark of a Parquet column, `dtype` to Polars; `Rules.apply_here` refuses others."""
    if isinstance(dtype, pl.Datetime):
        return T.TimestampType() if dtype.time_zone else T.TimestampNTZType()
    return _TYPES.get(dtype, T.StringType())
