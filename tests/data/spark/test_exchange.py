"""Frames go to the workers and come back as they are, without Python on the workers."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from turret.data.errors import DataError
from turret.data.spark.session import failed_jobs

# They need a session of Spark.
pytestmark = pytest.mark.nightly


def test_a_frame_comes_back_as_it_was_given(spark: Any, tmp_path: Path) -> None:
    from turret.data.spark.exchange import given, taken

    frame = pl.DataFrame(
        {"text": ["ü", "", None], "long": [1, None, -(2**63)], "half": [0.5, float("nan"), None]}
    )
    frame = frame.with_columns(row=pl.Series([0, 1, 2], dtype=pl.Int32))
    there = given(spark, frame, tmp_path / "frame.parquet")
    back = taken(there.orderBy("row"), tmp_path / "back")
    assert_frame_equal(back, frame)
    assert taken(there.where("row > 2"), tmp_path / "none").schema == frame.schema


def test_no_worker_starts_python(
    spark: Any, tmp_path: Path, both_ways: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in its place would fail."""
    (tmp_path / "events.csv").write_text("user,item,time\na,x,1\na,y,2\n,z,3\n", encoding="utf-8")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nonexistent/python")
    by_polars, by_spark = both_ways(source=tmp_path / "events.csv", on_bad="drop")
    assert by_spark == by_polars


def test_a_job_that_fails_ends_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "frame.parquet"
    pl.DataFrame({"row": range(1000)}).write_parquet(path)
    frame, content = spark.read.parquet(str(path)), path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(len(content) // 2 - 4) + content[len(content) // 2 :])
    with (
        pytest.raises(DataError, match=r"^a job of Spark on local has failed: \[FAILED_READ_FILE") as damaged,
        failed_jobs("local"),
    ):
        frame.collect()
    assert str(path) in str(damaged.value)
    assert "workers" not in str(damaged.value)
    path.unlink()
    with (
        pytest.raises(DataError, match=r"frame\.parquet.*; this machine and all workers must see the source"),
        failed_jobs("local"),
    ):
        frame.collect()


def test_a_folder_that_no_task_can_write_to_ends_in_a_sentence(spark: Any, tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"Mkdirs failed to create file:/proc/.*all workers must see"),
        failed_jobs("local"),
    ):
        spark.range(2).write.parquet("/proc/nowhere/frame")
