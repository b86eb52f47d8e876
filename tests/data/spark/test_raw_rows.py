"""Rows and their numbers, of lines and of Parquet, are those of Polars."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.test_fingerprints import _log

# They need a session of Spark.
pytestmark = pytest.mark.slow

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
