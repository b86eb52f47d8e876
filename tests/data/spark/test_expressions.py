"""Ids read by Spark are those read by Polars, value by value."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from turret.data.events.ids import id_key
from turret.data.reading.schema import NULLS

# They need a session of Spark.
pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    "values",
    [
        pl.Series(["a", " b ", "", " ", "null", "-", " nan\u2003", "\u00a0", "NA", None, "007"]),
        pl.Series([1, -2, None], dtype=pl.Int8),
        pl.Series([2**32 - 1, None], dtype=pl.UInt32),
        pl.Series([1.0, -0.0, 1.5, 1e18, 2.0**63, -(2.0**63), 1e19, 2.0**53, None, float("inf")]),
        pl.Series([1.0, 16777216.0, 0.5], dtype=pl.Float32),
    ],
    ids=lambda values: str(values.dtype),
)
def test_keys(spark: Any, tmp_path: Path, values: pl.Series) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from turret.data.spark import expressions

    frame = pl.DataFrame({"raw": values, "number": range(len(values))})
    frame.write_parquet(tmp_path / "values.parquet")
    read = spark.read.parquet(str(tmp_path / "values.parquet")).orderBy("number")
    key = expressions.id_key(F.col("raw"), values.dtype, NULLS)
    found = [row[0] for row in read.select(key).collect()]
    assert found == frame.select(id_key("raw", values.dtype))["raw"].to_list()


def test_types_that_are_left_to_polars(spark: Any) -> None:
    from turret.data.spark.expressions import is_readable_id

    assert not is_readable_id(pl.UInt64())
    assert not is_readable_id(pl.Series([Decimal("1.0")]).dtype)
