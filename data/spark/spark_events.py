"""Validated events in Parquet that Spark joins with the rows of ids, and sorts."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from turret.data.events.buckets import Change
from turret.data.events.event_arrays import Events
from turret.data.events.event_files import PIECE
from turret.data.events.events import PART
from turret.data.events.labels import LABEL
from turret.data.ranges import groups
from turret.data.spark.exchange import given, not_shared, taken

ORDER = "__order"
_USER, _ITEM, _BUCKET, _COUNT = "__user_row", "__item_row", "__bucket", "__count"


@dataclass(frozen=True)
class SparkEvents:
    """The events of a log as a frame of keys (see `data.events.buckets.UnsortedEvents`).

    `users` and `items` have the distinct keys, whose positions are the numbers of users and items, and the
    events of each.
    """

    session: SparkSession
    frame: DataFrame
    count: int
    columns: dict[str, DTypeLike]
    users: pl.DataFrame
    items: pl.DataFrame

    def __len__(self) -> int:
        return self.count

    def by_user(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, change: Change
    ) -> Iterator[Events]:
        """Yield the events sorted by user, part and time (stable), a bucket of users at a time.

        Raises DataError when the workers' files are not in the folder `work`.
        """
        target, read = work / "sorted", 0
        buckets = self._write_buckets(users, items, work, target)
        for bucket in range(buckets):
            files = list((target / f"{_BUCKET}={bucket}").glob("part-*.parquet"))
            if len(files) != 1:
                raise not_shared(target)
            events = self._events(pl.read_parquet(files[0], glob=False))
            read += len(events)
            yield change(events)
            files[0].unlink()
        if read != self.count:
            raise not_shared(target)

    def _write_buckets(
        self, users: NDArray[np.int32], items: NDArray[np.int32], work: Path, target: Path
    ) -> int:
        """Write a folder of one file for each bucket, and return their number."""
        order = np.argsort(users)
        totals = np.concatenate([[0], np.cumsum(self.users[_COUNT].to_numpy()[order])])
        first_users = groups(totals, PIECE)
        buckets = np.repeat(np.arange(len(first_users) - 1), np.diff(first_users))[users]
        user_rows = self.users.select("user", pl.Series(_USER, users), pl.Series(_BUCKET, buckets))
        item_rows = self.items.select("item", pl.Series(_ITEM, items))
        sort = [_BUCKET, _USER, *([PART] if "parts" in self.columns else []), "time", ORDER]
        (
            self.frame.join(given(self.session, user_rows, work / "user_rows.parquet"), "user")
            .join(given(self.session, item_rows, work / "item_rows.parquet"), "item")
            # The rows of a bucket are in one partition, and so in one file.
            .repartition(_BUCKET)
            .sortWithinPartitions(*sort)
            .drop("user", "item", ORDER)
            .write.partitionBy(_BUCKET)
            .parquet(str(target.absolute()))
        )
        return len(first_users) - 1

    def _events(self, rows: pl.DataFrame) -> Events:
        columns = self.columns
        return Events(
            rows[_USER].to_numpy(),
            rows[_ITEM].to_numpy(),
            times=rows["time"].to_numpy(),
            weights=rows["weight"].to_numpy() if "weights" in columns else None,
            parts=rows[PART].to_numpy() if "parts" in columns else None,
            labels=(rows[LABEL] == 1).cast(pl.Int8).to_numpy() if "labels" in columns else None,
        )


def counted(frame: DataFrame, role: str, work: Path) -> pl.DataFrame:
    """Return the distinct keys of a column, and the number of rows of each."""
    counts = frame.groupBy(role).agg(F.count("*").alias(_COUNT))
    return taken(counts, work / f"distinct_{role}")
