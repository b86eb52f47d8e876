"""Rows of a log on the executors of Spark: each of their tasks runs Polars on a piece of the log."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from turret.data.reading.tables import readable
from turret.data.rows import LocalRows, Pieces, Query, Rows
from turret.data.spark.session import failed_jobs, not_shared

Value = TypeVar("Value")
Task = Callable[[int, Value], Iterator[dict[str, list[Any]]]]
"""Yields columns of results for the number of a value and the value."""
PIECE = 1 << 20  # rows
_FEW = 8  # pieces in which the first rows are looked for before the others
_TYPES = {pa.int32(): "int", pa.int64(): "long", pa.string(): "string", pa.binary(): "binary"}
_RESULT = pa.schema([("number", pa.int64()), ("result", pa.binary())])


@dataclass(frozen=True)
class SparkEngine:
    """The executors of a session."""

    session: SparkSession

    def rows(self, frame: pl.LazyFrame, pieces: Pieces, path: Path) -> Rows:
        """Return the rows of `frame` in its pieces; this process reads none of them."""
        return SparkRows(self, frame.collect_schema(), tuple(pieces(PIECE)), path)

    def run(self, function: Callable[[Value], bytes], values: Sequence[Value], /) -> list[bytes]:
        """Return the results of `function` for each of `values`, each from a task of an executor."""

        def task(number: int, value: Value) -> Iterator[dict[str, list[Any]]]:
            yield {"number": [number], "result": [function(value)]}

        return self._results(task, values)

    def write_table(self, name: str, folder: Path) -> None:
        """Write a table of Spark's catalogs as Parquet, by executors, in the order in which Spark reads it.

        Raises DataError for a name that Spark does not know, and for workers without this folder.
        """
        with self.jobs():
            self.session.table(name).write.parquet(str(folder.absolute()))
        if not any(folder.glob("*.parquet")):
            raise not_shared(folder)

    def _results(self, task: Task[Value], values: Sequence[Value]) -> list[bytes]:
        with self.jobs():
            rows = self.tasks(task, values, _RESULT).collect()
        return [bytes(result) for _, result in sorted(map(tuple, rows))]

    def jobs(self) -> Any:
        """Return a context in which a failed job is an error of Turret."""
        return failed_jobs(self.session.conf.get("spark.master", "the cluster") or "the cluster")

    def tasks(self, task: Task[Value], values: Sequence[Value], schema: pa.Schema) -> DataFrame:
        """Return the results of `task`, columns of `schema`, from one task of Spark for each value."""
        count = len(values)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for columns in task(number, values[number]):
                        yield pa.RecordBatch.from_pydict(columns, schema=schema)

        numbers = self.session.range(0, count, 1, max(count, 1))
        return in_arrow(numbers, run, ", ".join(f"{column.name} {_TYPES[column.type]}" for column in schema))


@dataclass(frozen=True)
class SparkRows(Rows):
    """Rows in pieces of files that executors read, each changed by `steps`.

    `columns` are the columns of a piece before the steps, and `path` is for messages.
    """

    engine: SparkEngine
    columns: pl.Schema
    pieces: tuple[pl.LazyFrame, ...]
    path: Path
    steps: tuple[Query, ...] = ()
    _heads: dict[int, LocalRows] = field(default_factory=dict, compare=False)

    def schema(self) -> pl.Schema:
        """Return the columns behind the steps."""
        return _changed(pl.LazyFrame(schema=self.columns), self.steps).collect_schema()

    def then(self, step: Query) -> "SparkRows":
        """Return the rows with one more step."""
        return replace(self, steps=(*self.steps, step), _heads={})

    def and_others(self, others: Sequence[Rows]) -> "SparkRows":
        """Return these rows and then those of `others`, each piece with its steps."""
        every = [rows for rows in (self, *others) if isinstance(rows, SparkRows)]
        pieces = [rows.opening()(piece) for rows in every for piece in rows.pieces]
        return replace(self, columns=self.schema(), pieces=tuple(pieces), steps=(), _heads={})

    def head(self, count: int) -> LocalRows:
        """Return the first rows, which this process holds."""
        if count not in self._heads:
            self._heads[count] = LocalRows(self.first(count, lambda frame: frame).lazy())
        return self._heads[count]

    def first(self, count: int, query: Query) -> pl.DataFrame:
        """Return the first rows of the results of `query`, from as few pieces as have them."""
        frames = [query(pl.LazyFrame(schema=self.schema())).head(0).collect()]
        start, end = 0, 1
        while start < len(self.pieces) and sum(map(len, frames)) < count:
            frames += self._results(lambda frame: query(frame).head(count), self.pieces[start:end])
            start, end = end, _FEW if start == 0 else len(self.pieces)
        return pl.concat(frames).head(count)

    def collect(self, query: Query) -> pl.DataFrame:
        """Return the results of `query` on each piece, in order."""
        none = query(pl.LazyFrame(schema=self.schema())).collect().clear()
        return pl.concat([none, *self._results(query, self.pieces)])

    def _results(self, query: Query, pieces: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]:
        opened, path = self.opening(), self.path

        def result(piece: pl.LazyFrame) -> bytes:
            with readable(path):
                return as_ipc(query(opened(piece)).collect(engine="streaming"))

        return [from_ipc(content) for content in self.engine.run(result, pieces)]

    def opening(self) -> Query:
        """Return the function that makes rows of a piece, for executors."""
        columns, steps = self.columns, self.steps

        def opened(piece: pl.LazyFrame) -> pl.LazyFrame:
            # Parts lack columns, and have narrower types, as they do where one process joins them.
            whole = pl.concat([pl.LazyFrame(schema=columns), piece], how="diagonal_relaxed")
            return _changed(whole, steps)

        return opened


def _changed(frame: pl.LazyFrame, steps: Sequence[Query]) -> pl.LazyFrame:
    for step in steps:
        frame = step(frame)
    return frame


def as_ipc(frame: pl.DataFrame) -> bytes:
    """Return a frame in Arrow's format."""
    stream = BytesIO()
    frame.write_ipc(stream)
    return stream.getvalue()


def from_ipc(content: bytes) -> pl.DataFrame:
    """Return the frame that `as_ipc` has written."""
    return pl.read_ipc(BytesIO(content))


def in_arrow(
    rows: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the rows that `function` makes of those of each partition, on executors."""
    # Polars asks for this package when it passes on an expression with a function, and Spark has its copy.
    sys.modules.setdefault("cloudpickle", cloudpickle)
    with warnings.catch_warnings():
        # Spark needs pandas for this, and passes no frame of pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return rows.mapInArrow(function, schema)
