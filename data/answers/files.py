"""The files of the answer log in a range of times, and their answers in blocks of bounded size.

This reader needs pyarrow and no Polars, so that the service can read its own log.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from turret.data.answers.form import files_of
from turret.data.errors import SourceError, brief

# These are the columns of `data.answers.log.SCHEMA`, in the types of pyarrow.
SCHEMA = pa.schema(
    {
        "answer_id": pa.string(),
        "time": pa.timestamp("ms", "UTC"),
        "call": pa.string(),
        "version": pa.string(),
        "route": pa.string(),
        "visitor": pa.string(),
        "items": pa.list_(pa.string()),
        "places": pa.list_(pa.uint16()),
        "scores": pa.list_(pa.float32()),
        "sources": pa.list_(pa.string()),
        "propensities": pa.list_(pa.float64()),
        "context": pa.string(),
        "rules": pa.list_(pa.string()),
    }
)
# The columns that outcomes need.
COLUMNS = pa.schema(
    [SCHEMA.field(name) for name in ("answer_id", "time", "version", "route", "visitor", "items", "places")]
)
BLOCK_ROWS = 20_000  # answers in memory at a time
# An id of an answer begins with 12 digits of its time: this many name a bucket of 65 seconds.
_BUCKET_DIGITS, _BUCKETS = 8, 8


class Answers(Protocol):
    """Answers that can be read several times."""

    def blocks(self, *columns: str) -> Iterator[pa.Table]:
        """Yield the answers of consecutive minutes, with these columns of `COLUMNS`."""


class AnswerFolder:
    """The answers of a log's folder with first <= time < last, in milliseconds since 1970; None: no bound."""

    def __init__(self, folder: Path, first: int | None = None, last: int | None = None) -> None:
        """Raises SourceError for no folder, EmptyDataError for one without files of the range."""
        self.folder, self._first, self._last = folder, first, last
        self._paths = files_of(folder, first, last)

    def blocks(self, *columns: str) -> Iterator[pa.Table]:
        """Yield blocks of up to BLOCK_ROWS answers; a file that has expired meanwhile has none.

        Raises SourceError for a file that is damaged or has other columns.
        """
        schema = pa.schema([COLUMNS.field(name) for name in dict.fromkeys((*columns, "time"))])
        waiting, rows = list[pa.Table](), 0
        for path in self._paths:
            for table in _tables(path, schema):
                waiting.append(self._within(table))
                rows += len(waiting[-1])
                if rows >= BLOCK_ROWS:
                    yield pa.concat_tables(waiting).combine_chunks()
                    waiting, rows = [], 0
        if rows:
            yield pa.concat_tables(waiting).combine_chunks()

    def _within(self, table: pa.Table) -> pa.Table:
        times = table["time"].cast(pa.int64()).to_numpy()
        if (self._first is None or (times >= self._first).all()) and (
            self._last is None or (times < self._last).all()
        ):
            return table
        first, last = self._first, self._last
        return table.filter(pa.array((first is None or times >= first) & (last is None or times < last)))


def _tables(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file. Raises SourceError."""
    try:
        with pq.ParquetFile(path) as file:
            _check(path, file.schema_arrow, schema)
            for batch in file.iter_batches(BLOCK_ROWS, columns=schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
    except FileNotFoundError:
        return
    except (pa.ArrowException, OSError) as error:
        line = brief(str(error).partition("\n")[0], 200)
        raise SourceError(f"{path} can't be read ({line}); delete it, its answers are lost") from None


def _check(path: Path, columns: pa.Schema, schema: pa.Schema) -> None:
    for field in schema:
        there = columns.field(field.name).type if field.name in columns.names else None
        if there is None or _plain(there) != field.type:
            has = f"has no column {field.name}" if there is None else f"has {field.name} of {there}"
            raise SourceError(
                f"{path} {has}, where the answer log has {field.name} of {field.type}; move the file out of "
                "the folder"
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without the width of its offsets, which differs between writers."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


class Distinct:
    """Drops the answers whose id came before within some minutes, as of a file that was written twice."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def of(self, table: pa.Table) -> pa.Table:
        """Return the answers of a block that are new."""
        is_new = [self._add(name) for name in table["answer_id"].to_pylist()]
        for bucket in sorted(self._seen)[:-_BUCKETS]:
            del self._seen[bucket]
        return table if all(is_new) else table.filter(pa.array(is_new))

    def _add(self, name: str) -> bool:
        bucket = self._seen.setdefault(name[:_BUCKET_DIGITS], set())
        size = len(bucket)
        bucket.add(name)
        return len(bucket) > size
