"""Events of a log on executors: counted by ids, divided into buckets of users, and sorted in these."""

import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray
from pyspark.sql import DataFrame as SparkFrame

from turret.data.events.event_arrays import Change, Events, user_blocks
from turret.data.events.events import events_of
from turret.data.events.labels import LABEL
from turret.data.events.log import VERDICT, Log
from turret.data.reading.tables import readable
from turret.data.spark.engine import PIECE, SparkRows, as_ipc, from_ipc, in_arrow
from turret.data.spark.session import not_shared

_COUNT = "count"
_USER, _ITEM, _VERDICT, _LABEL = range(4)
"""The counted things: events of users and of items, rows of verdicts, and events of labels."""
_MOST_SHARES = 64  # parts of the ids that are counted apart
# Rows are packed, a piece of a bucket in one value: Spark moves a few thousand values, not each event.
_PACKED = pa.schema(
    [("bucket", pa.int32()), ("piece", pa.int64()), ("batch", pa.int32()), ("rows", pa.binary())]
)
Finish = Callable[[int, pl.DataFrame], pl.DataFrame]
"""Makes the rows of a bucket, in order, the finished rows of its file."""


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
        order = np.argsort(users)
        keys = self.users["key"].gather(order)
        totals = np.concatenate([[0], np.cumsum(self.users[_COUNT].to_numpy()[order])])
        first_users = user_blocks(totals)
        # Ids that are texts of integers are in the order of the integers.
        dtype = keys.dtype if keys.is_sorted() else pl.Int64()
        bounds = keys.cast(dtype).gather(first_users[1:-1])
        rows = pl.DataFrame({"item": self.items["key"], "row": items[: len(self.items)]})
        rows.write_ipc(work / "items.arrow")
        finish = _sorting(dtype, first_users, work / "items.arrow")
        divided = _tasks(self.log, _dividing(bounds))
        read = 0
        for arrays in _finished(self.log, divided, len(first_users) - 1, finish, target):
            read += len(arrays)
            yield change(Events(**{name: arrays[name].to_numpy() for name in arrays.columns}))
        if read != self.count:
            raise not_shared(target)


def _rows_of(log: Log) -> SparkRows:
    values = log.values
    assert isinstance(values, SparkRows)
    return values


def _tasks(log: Log, packed: Callable[[pl.DataFrame], Iterator[tuple[int, pl.DataFrame]]]) -> SparkFrame:
    """Return the buckets and their rows that `packed` makes of batches of `Log.values`, on executors."""
    rows, path = _rows_of(log), log.path
    opened = rows.opening()

    def run(number: int, piece: pl.LazyFrame) -> Iterator[dict[str, list[Any]]]:
        with readable(path):
            for place, batch in enumerate(
                opened(piece).collect_batches(chunk_size=PIECE, engine="streaming")
            ):
                for bucket, some in packed(batch):
                    yield {"bucket": [bucket], "piece": [number], "batch": [place], "rows": [as_ipc(some)]}

    return rows.engine.tasks(run, rows.pieces, _PACKED)


def _finished(
    log: Log, packed: SparkFrame, partitions: int, finish: Finish, target: Path
) -> Iterator[pl.DataFrame]:
    """Yield the finished rows of each bucket in order, which executors write into the folder `target`.

    The rows of a bucket meet in one partition, in the order of the log. Raises DataError for files that are
    not there.
    """
    target.mkdir(exist_ok=True)

    def pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            yield from zip(batch["bucket"].to_pylist(), batch["rows"].to_pylist(), strict=True)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket, group in groupby(pairs(batches), itemgetter(0)):
            _write(finish(bucket, pl.concat([from_ipc(content) for _, content in group])), target, bucket)
            yield pa.RecordBatch.from_pydict({"bucket": pa.array([bucket], pa.int32())})

    together = packed.repartition(max(partitions, 1), "bucket")
    done = in_arrow(together.sortWithinPartitions("bucket", "piece", "batch"), run, "bucket int")
    with _rows_of(log).engine.jobs():
        buckets = sorted(bucket for (bucket,) in done.collect())
    for bucket in buckets:
        files = list(target.glob(f"{bucket}.arrow"))
        if len(files) != 1:
            raise not_shared(target)
        rows = pl.read_ipc(files[0])
        files[0].unlink()
        yield rows


def _write(rows: pl.DataFrame, folder: Path, bucket: int) -> None:
    # Spark may run a task twice; the file appears whole.
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{uuid.uuid4().hex}.new"
    rows.write_ipc(written)
    os.replace(written, folder / f"{bucket}.arrow")


def _dividing(bounds: pl.Series) -> Callable[[pl.DataFrame], Iterator[tuple[int, pl.DataFrame]]]:
    """Return the function that divides rows into buckets, of which all but the first begin at `bounds`."""

    def divide(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        events = rows.filter(pl.col(VERDICT).is_null()).drop(VERDICT)
        events = events.with_columns(pl.col("user").cast(bounds.dtype))
        buckets = bounds.search_sorted(events["user"], side="right").cast(pl.Int32).alias("__bucket")
        for (bucket,), some in events.group_by(buckets, maintain_order=True):
            yield bucket, some

    return divide


def _sorting(dtype: pl.DataType, first_users: NDArray[np.int64], items: Path) -> Finish:
    """Return the function that sorts the events of a bucket, with rows in place of ids.

    The users of a bucket are the rows from its first user on, in the order of their keys.
    """

    def sort(bucket: int, events: pl.DataFrame) -> pl.DataFrame:
        number = events["user"].cast(dtype).rank("dense").to_numpy().astype(np.int32) - 1
        rows = events.select("item").join(pl.read_ipc(items), on="item", how="left", maintain_order="left")
        users = number + np.int32(first_users[bucket])
        arrays = vars(events_of(events, users, rows["row"].to_numpy().astype(np.int32)).sorted())
        return pl.DataFrame({name: values for name, values in arrays.items() if values is not None})

    return sort


def read_by_spark(
    log: Log, work: Path
) -> tuple[SparkEvents, pl.Series, pl.Series, pl.Series, Counter[str], Counter[int]]:
    """Read `log` as `data.events.events.read_events` does, by the same rules, on executors.

    Each id is counted in pieces, and the counts of a share of the ids are added up in one task. `work` is a
    folder that all workers share with this process.
    """
    shares = min(len(_rows_of(log).pieces), _MOST_SHARES)
    counted = _tasks(log, _counting(shares))
    counts: list[list[pl.DataFrame]] = [[] for _ in range(_LABEL + 1)]
    # A log with further formats of times is read again.
    target = Path(tempfile.mkdtemp(prefix="counts.", dir=work))
    for rows in _finished(log, counted, 2 * shares, _added, target):
        counts[rows["role"][0]].append(rows.drop("role"))
    schema = log.values.schema()
    users, items = (
        pl.concat([pl.DataFrame(schema={"key": schema[name], _COUNT: pl.Int64}), *counts[role]])
        for role, name in ((_USER, "user"), (_ITEM, "item"))
    )
    verdicts, labels = (
        Counter(dict(row for rows in counts[role] for row in rows.iter_rows())) for role in (_VERDICT, _LABEL)
    )
    events = int(users[_COUNT].sum())
    read = SparkEvents(log, log.columns, events, users, items)
    return read, users["key"], items["key"], pl.Series(dtype=pl.String), verdicts, labels


def _counting(shares: int) -> Callable[[pl.DataFrame], Iterator[tuple[int, pl.DataFrame]]]:
    """Return the function that counts the rows of a batch by key and role, a share of the keys a bucket."""

    def count(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        events, others = rows.filter(pl.col(VERDICT).is_null()), rows[VERDICT].drop_nulls()
        keys = {_USER: events["user"], _ITEM: events["item"], _VERDICT: others}
        if LABEL in rows.columns:
            keys[_LABEL] = events[LABEL]
        for role, values in keys.items():
            counts = (
                values.alias("key")
                .value_counts(name=_COUNT)
                .with_columns(pl.lit(role, pl.Int8).alias("role"), pl.col(_COUNT).cast(pl.Int64))
            )
            share = counts["key"].hash() % shares if role in (_USER, _ITEM) else counts["key"].hash() % 1
            for (number,), some in counts.group_by(share.cast(pl.Int32).alias("__share")):
                yield role * shares + number, some

    return count


def _added(bucket: int, counts: pl.DataFrame) -> pl.DataFrame:
    return counts.group_by("role", "key").agg(pl.col(_COUNT).sum())
