"""Rows and their numbers, of lines and of Parquet, are those of Polars."""

from collections.abc import Callable
from datetime import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.test_fingerprints import _log

# They need a session of Spark.
pytestmark = pytest.mark.nightly

BothWays = Callable[..., tuple[dict[str, Any], dict[str, Any]]]


def test_lines_are_numbered_over_many_blocks_of_a_file(
    tmp_path: Path, both_ways: BothWays, spark: Any
) -> None:
    """The order of the file decides between events of one time, and is all that sorts these."""
    rows = "".join(f"{row * 7919 % 13},{row}\n" for row in range(3000))
    (tmp_path / "long.csv").write_text(f"user,item\n{rows}", encoding="utf-8")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3000")
    try:
        by_polars, by_spark = both_ways(source=tmp_path / "long.csv", columns={"in_file_order": True})
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert by_spark == by_polars


def test_parts_and_columns_with_odd_names_are_read_alike(tmp_path: Path, both_ways: BothWays) -> None:
    folder = tmp_path / "the log + 100 % é"
    folder.mkdir()
    log = _log(600).rename({"user_id": "the `user`. a"})
    for number in range(3):
        part = log.slice(200 * number, 200).with_columns(pl.lit(number).alias("extra"))
        part.write_parquet(folder / f"part-{number:05}.parquet")
    columns = {"user": "the `user`. a", "item": "item_id", "in_file_order": True}
    by_polars, by_spark = both_ways(source=folder, columns=columns)
    assert by_spark == by_polars


@pytest.mark.parametrize(
    "name", ["log[1].csv", "log{a,b}.csv", "log*.csv", "12:00.csv", "_log.csv", ".log.csv"]
)
def test_a_file_of_any_name_is_read(tmp_path: Path, both_ways: BothWays, name: str) -> None:
    """Hadoop takes some names for patterns, hides others, and can't check those with a colon."""
    (tmp_path / name).write_text("user,item,time\na,x,1\na,y,2\na,z,3\n", encoding="utf-8")
    by_polars, by_spark = both_ways(source=tmp_path / name)
    assert by_spark == by_polars


def test_only_the_needed_columns_of_parquet_count(tmp_path: Path, both_ways: BothWays) -> None:
    """Spark has no type for times of day and nanoseconds, and by default no columns that differ in case."""
    log = _log(60).with_columns(
        pl.lit(time(12)).alias("opened"),
        pl.lit(0).cast(pl.Datetime("ns")).alias("stored_at"),
        pl.lit("x").alias("USER_ID"),
        pl.lit(1).alias("_metadata"),
    )
    log.write_parquet(tmp_path / "log.parquet")
    by_polars, by_spark = both_ways(source=tmp_path / "log.parquet")
    assert by_spark == by_polars


def test_a_byte_order_mark_begins_a_file_and_no_other_line(tmp_path: Path, both_ways: BothWays) -> None:
    rows = "\ufeffa,x,1\n\ufeffa,x,2\na,y,3\nb,y,4\n"
    (tmp_path / "log.csv").write_text(rows, encoding="utf-8", newline="")
    columns = {"user": "column_1", "item": "column_2", "in_file_order": True, "weight": "column_3"}
    by_polars, by_spark = both_ways(
        source=tmp_path / "log.csv", columns=columns, format={"has_header": False}, on_bad="drop"
    )
    assert by_polars["counts"]["users"] == 3
    assert by_spark == by_polars


def test_a_carriage_return_of_a_value_stays(tmp_path: Path, both_ways: BothWays) -> None:
    (tmp_path / "log.csv").write_bytes(b"user,time,item\r\na,1,x\r\r\na,2,x\r\na,3,y\r\n")
    by_polars, by_spark = both_ways(source=tmp_path / "log.csv")
    assert by_polars["counts"]["items"] == 3
    assert by_spark == by_polars
