"""Events of a log on executors: counted by ids, divided into buckets of users, and sorted in these."""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import functions as F  # noqa: N812

from turret.data.errors import DataError
from turret.data.events.event_arrays import Change, Events, user_blocks
from turret.data.events.events import VERDICT, Log, events_of
from turret.data.events.labels import LABEL
from turret.data.reading.tables import readable
from turret.data.spark.engine import PIECE, SparkRows, as_ipc, from_ipc, in_arrow

_COUNT = "count"
_USER, _ITEM, _VERDICT, _LABEL = range(4)
"""What a row of counts counts: events of a user, of an item, rows of a verdict, events of a label."""
_COUNTS = pa.schema(
    [("role", pa.int32()), ("number", pa.int64()), ("text", pa.string()), (_COUNT, pa.int64())]
)
# Rows are packed, a piece of a bucket in one value: Spark moves a few thousand values, not each event.
_PACKED = pa.schema(
    [("bucket", pa.int32()), ("piece", pa.int64()), ("batch", pa.int32()), ("events", pa.binary())]
)
_SORTED = "bucket int, count long"


def not_shared(folder: Path) -> DataError:
    """Return the error for workers that have written into a folder of their own."""
    return DataError(
        f"Spark has written {folder}, and not all of it is there: its workers have another file system; "
        "choose a folder with --to that this machine and all workers share"
    )


@dataclass
class SparkEvents:
    """The events of a log on executors, read as `data.events.event_arrays.EventFiles` are.

    `users` and `items` have the distinct keys, whose positions are the numbers of users and items, and the
    number of events of each key.
    """

    log: Log
    columns: dict[str, DTypeLike]
    count: int
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
        target = work / "sorted"
        target.mkdir()
        order = np.argsort(users)
        keys = self.users["key"].gather(order)
        totals = np.concatenate([[0], np.cumsum(self.users[_COUNT].to_numpy()[order])])
        first_users = user_blocks(totals)
        # Ids that are texts of integers are in the order of the integers.
        dtype = keys.dtype if keys.is_sorted() else pl.Int64()
        bounds = keys.cast(dtype).gather(first_users[1:-1])
        rows = pl.DataFrame({"item": self.items["key"], "row": items[: len(self.items)]})
        rows.write_ipc(work / "items.arrow")
        divided = _divided(self.log, bounds)
        # The rows of a bucket are in one partition.
        divided = divided.repartition(max(len(first_users) - 1, 1), "bucket")
        sort = _sorting(dtype, first_users, work / "items.arrow", target)
        done = in_arrow(divided.sortWithinPartitions("bucket", "piece", "batch"), sort, _SORTED)
        with _rows_of(self.log).engine.jobs():
            counts = dict(map(tuple, done.collect()))
        read = 0
        for bucket in sorted(counts):
            files = list(target.glob(f"{bucket}.arrow"))
            if len(files) != 1:
                raise not_shared(target)
            arrays = pl.read_ipc(files[0])
            files[0].unlink()
            read += len(arrays)
            yield change(Events(**{name: arrays[name].to_numpy() for name in arrays.columns}))
        if read != self.count:
            raise not_shared(target)


def _rows_of(log: Log) -> SparkRows:
    values = log.values()
    assert isinstance(values, SparkRows)
    return values


def _batches(log: Log) -> Callable[[pl.LazyFrame], Iterator[pl.DataFrame]]:
    """Return the function that reads a piece on an executor, a batch of `Log.values` at a time."""
    opened, path = _rows_of(log).opening(), log.path

    def batches(piece: pl.LazyFrame) -> Iterator[pl.DataFrame]:
        with readable(path):
            yield from opened(piece).collect_batches(chunk_size=PIECE, engine="streaming")

    return batches


def _divided(log: Log, bounds: pl.Series) -> Any:
    """Return the events, packed by bucket; `bounds` are the first keys of all buckets but the first."""
    batches = _batches(log)

    def divide(number: int, piece: pl.LazyFrame) -> Iterator[dict[str, list[Any]]]:
        for place, rows in enumerate(batches(piece)):
            events = rows.filter(pl.col(VERDICT).is_null()).drop(VERDICT)
            events = events.with_columns(pl.col("user").cast(bounds.dtype))
            bucket = bounds.search_sorted(events["user"], side="right").cast(pl.Int32)
            for (chosen,), packed in events.group_by(bucket.alias("__bucket"), maintain_order=True):
                yield {
                    "bucket": [chosen],
                    "piece": [number],
                    "batch": [place],
                    "events": [as_ipc(packed)],
                }

    rows = _rows_of(log)
    return rows.engine.tasks(divide, rows.pieces, _PACKED)


def _sorting(
    dtype: pl.DataType, first_users: NDArray[np.int64], items: Path, target: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function by which executors sort buckets, and write each into a file in `target`.

    The users of a bucket are the rows from its first user on, in the order of their keys.
    """

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            yield from zip(batch["bucket"].to_pylist(), batch["events"].to_pylist(), strict=True)

    def sort(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows_of_items: pl.DataFrame | None = None
        for bucket, group in groupby(packed(batches), lambda pair: pair[0]):
            if rows_of_items is None:
                rows_of_items = pl.read_ipc(items)
            events = pl.concat([from_ipc(content) for _, content in group])
            number = events["user"].cast(dtype).rank("dense").to_numpy().astype(np.int32) - 1
            joined = events.select("item").join(rows_of_items, on="item", how="left", maintain_order="left")
            arrays = events_of(
                events, number + np.int32(first_users[bucket]), joined["row"].to_numpy().astype(np.int32)
            ).sorted()
            _write(arrays, target / f"{bucket}.arrow")
            yield pa.RecordBatch.from_pydict(
                {"bucket": pa.array([bucket], pa.int32()), "count": pa.array([len(arrays)], pa.int64())}
            )

    return sort


def _write(events: Events, path: Path) -> None:
    # Spark may run a task twice; the file appears whole.
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{uuid.uuid4().hex}.new")
    pl.DataFrame({name: values for name, values in vars(events).items() if values is not None}).write_ipc(
        written
    )
    os.replace(written, path)


def read_by_spark(
    log: Log, work: Path
) -> tuple[SparkEvents, pl.Series, pl.Series, Counter[str], Counter[int]]:
    """Read `log` as `data.events.events.read_events` does, by the same rules, on executors.

    Spark adds up the counts of the pieces. `work` is a folder that all workers share with this process.
    """
    rows, target = _rows_of(log), work / "counts"
    batches, schema = _batches(log), log.rows.schema()

    def count(number: int, piece: pl.LazyFrame) -> Iterator[dict[str, list[Any]]]:
        for batch in batches(piece):
            for counts in _counts(batch):
                yield counts.select(_COUNTS.names).to_dict(as_series=False)

    with rows.engine.jobs():
        counted = rows.engine.tasks(count, rows.pieces, _COUNTS)
        summed = counted.groupBy("role", "number", "text").agg(F.sum(_COUNT).alias(_COUNT))
        summed.write.partitionBy("role").parquet(str(target.absolute()))
    users, items = (
        _read(target, role, "text" if schema[name] == pl.String else "number")
        for role, name in ((_USER, "user"), (_ITEM, "item"))
    )
    verdicts = Counter[str](dict(_read(target, _VERDICT, "text").iter_rows()))
    labels = Counter[int](dict(_read(target, _LABEL, "number").iter_rows()))
    events = int(users[_COUNT].sum())
    if events != items[_COUNT].sum() or not any(target.glob("role=*/*.parquet")):
        raise not_shared(target)
    return SparkEvents(log, log.columns(), events, users, items), users["key"], items["key"], verdicts, labels


def _counts(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the counts of a batch, with the columns of `_COUNTS`."""
    events = rows.filter(pl.col(VERDICT).is_null())
    bad = rows.filter(pl.col(VERDICT).is_not_null())
    keys = [(_USER, events["user"]), (_ITEM, events["item"]), (_VERDICT, bad[VERDICT])]
    keys += [(_LABEL, events[LABEL])] if LABEL in rows.columns else []
    for role, values in keys:
        counts = values.alias("key").value_counts(name=_COUNT)
        is_text = values.dtype == pl.String
        yield counts.select(
            role=pl.lit(role, pl.Int32),
            number=pl.lit(None, pl.Int64) if is_text else pl.col("key").cast(pl.Int64),
            text=pl.col("key") if is_text else pl.lit(None, pl.String),
            count=pl.col(_COUNT).cast(pl.Int64),
        )


def _read(target: Path, role: int, column: str) -> pl.DataFrame:
    """Return the keys of a role in `column`, and their counts; none where Spark has written none."""
    files = sorted((target / f"role={role}").glob("*.parquet"))
    if not files:
        dtype = pl.String if column == "text" else pl.Int64
        return pl.DataFrame(schema={"key": dtype, _COUNT: pl.Int64})
    return pl.read_parquet(files, columns=[column, _COUNT], glob=False, hive_partitioning=False).rename(
        {column: "key"}
    )
