"""Times read by Spark are those read by Polars, value by value."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from turret.data.reading.schema import ColumnSettings
from turret.data.reading.times import Dates, TimeReader, choose_reader

# They need a session of Spark.
pytestmark = pytest.mark.nightly

DATES = """2024-05-01;2024-5-1;2024-05-01 12:30;2024-05-01T12:30:15Z;2024-05-01 12:30:15.9996
2024-05-01T12:30:15+02:00;2024-05-01T12:30:15-0330;2024-05-01 12:30:15.5+02;2024-13-01;2024-02-30;24-05-01
02024-05-01;  2024-05-01 ;2024-05-01 25:00;2024-05-01  12:30;2024-05-01 12:30:60;2024-05-01 12:60;0001-01-01
9999-12-31;1969-12-31 23:59:59.9999;2024-05-01 12:30:15.;2024-05-01 12:30:15.1234567891;2024-05-01Z;2024/05/01
2024-05-01 12:30:15+24:00;2024-05-01 12:30:15+02:60;+2024-05-01;2024-05-0\uff11;2024-05-01 12
2024-05-01TT12:30
2024-05-01 24:00:00;2024-05-0112:30;0000-01-01;2024-05-01 12:30:61;2024-05-01 12:30:15.5   +0200;x""".replace(
    "\n", ";"
).split(";")
NUMBERS = """1;+1;-1;1700000000;1700000000.5;1e9;1.7E+9; 1700000000 ;x;inf;-inf;nan;1d;1f;0x10
1_000;1e400;.5;5.;9223372036854775807;9223372036854775808;-;1e;1700000000.00025;-62135596801;253402300800;1,5;\uff11;007;--1
1700000000000001;-999;-1000""".replace("\n", ";").split(";")
MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 5, 1, 1, 2, 3, 999_999),
    datetime(1, 1, 1),
]


def compare(spark: Any, folder: Path, values: pl.Series, **settings: Any) -> TimeReader:
    """Read `values` both ways, and return the reader."""
    from pyspark.sql import functions as F  # noqa: N812

    from turret.data.spark.times import can_read, time_value

    frame = pl.DataFrame({"raw_time": values, "number": range(len(values))})
    reader = choose_reader(frame.lazy(), "raw_time", "t", ColumnSettings(**settings))
    assert can_read(reader, values.dtype)
    frame.write_parquet(folder / "values.parquet")
    read = spark.read.parquet(str(folder / "values.parquet")).orderBy("number")
    found = [row[0] for row in read.select(time_value(reader, F.col("raw_time"), values.dtype)).collect()]
    expected = frame.select(reader.value.alias("time"))["time"].to_list()
    # repr: NaN is not equal to itself.
    assert [*map(repr, zip(values, found, strict=True))] == [*map(repr, zip(values, expected, strict=True))]
    assert {type(one) for one in found} == {type(one) for one in expected}
    return reader


@pytest.mark.parametrize(
    ("usual", "texts"),
    [
        ("2024-01-01", DATES),
        ("13/02/2024", ["01/02/2024", "13/02/2024 10:11", "1/2/24", "31.12.2024", None]),
        ("1700000000", NUMBERS),
        ("1700000000.5", NUMBERS),
        ("1700000000000", NUMBERS),
        ("1700000000000000", NUMBERS),
        ("5", NUMBERS),
        ("5.5", NUMBERS),
    ],
)
def test_texts(spark: Any, tmp_path: Path, usual: str, texts: list[str | None]) -> None:
    compare(spark, tmp_path, pl.Series([usual] * 400 + texts))


def test_a_format_of_the_settings(spark: Any, tmp_path: Path) -> None:
    texts = pl.Series(["01-02-2024 05:06", "1-2-2024 5:6", "x", None])
    compare(spark, tmp_path, texts, time_format="%d-%m-%Y %H:%M")


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([1_700_000_000, 1, -5, 2**62, None]),
        pl.Series([1_700_000_000.25, 1.5, float("inf"), float("nan"), 2e18, -0.0, 1_700_000_000.0005]),
        pl.Series([4.0, 1.5, float("inf"), 1e300]),
        pl.Series([4.0, 3.0, float("inf"), 1e300, 2.0**63, -(2.0**63)]),
        pl.Series([date(1, 1, 1), date(1500, 1, 1), date(2024, 1, 1)]),
        pl.Series(MOMENTS).cast(pl.Datetime("ms")),
        pl.Series(MOMENTS).cast(pl.Datetime("us")),
        pl.Series(MOMENTS).cast(pl.Datetime("us", "UTC")),
        pl.Series(MOMENTS).cast(pl.Datetime("us", "Europe/Paris")),
    ],
    ids=lambda values: f"{values.dtype} {values[0]}",
)
def test_typed_columns(spark: Any, tmp_path: Path, values: pl.Series) -> None:
    compare(spark, tmp_path, values)


@pytest.mark.parametrize(
    "time_format", ["%d %B %Y", "%Y-%m", "%Y-%m-%d %H", "%Y-%m-%d %Y", "%Y-%m-%d %H:%M.%f", "%Y-%m-%d %M"]
)
def test_formats_that_are_left_to_polars(spark: Any, time_format: str) -> None:
    from turret.data.spark.times import can_read

    form = Dates((time_format,), is_loose=False)
    assert not can_read(TimeReader("timestamp", pl.col("t"), "", form=form), pl.String())
