"""Frames between this process and the workers, as Parquet in a folder that they share."""

from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from turret.data.errors import DataError


def given(session: SparkSession, frame: pl.DataFrame, path: Path) -> DataFrame:
    """Return a frame of Polars as one of Spark, by the new file `path`.

    Spark's own `createDataFrame` starts Python on the workers.
    """
    frame.write_parquet(path)
    return session.read.parquet(str(path.absolute()))


def taken(frame: DataFrame, folder: Path) -> pl.DataFrame:
    """Return a frame of Spark as one of Polars, by the new folder `folder`.

    Spark's own collection has a limit of memory. Raises DataError when the workers' files are not there.
    """
    frame.write.parquet(str(folder.absolute()))
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        raise not_shared(folder)
    return pl.concat(pl.read_parquet(file, glob=False) for file in files)


def not_shared(folder: Path) -> DataError:
    """Return the error that the workers have written into a folder of their own."""
    return DataError(
        f"Spark has written {folder}, and not all of it is there: its workers have another file system; "
        "choose a folder with --to that this machine and all workers share"
    )
