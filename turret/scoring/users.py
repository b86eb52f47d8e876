"""The users of a run: the contract of their sources, and those of a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson
import polars as pl

from turret.data.errors import ColumnError, DataError, SourceError, brief, shown
from turret.data.manifest import hash_file
from turret.data.vocabulary import Id
from turret.scoring.conditions import request_of
from turret.scoring.scorer import Block, QueryBlock
from turret.service.ranking.query import NO_HISTORY, Query, make_query
from turret.tower.bundle.bundle import Bundle

Load = Callable[[], Block]
Value = TypeVar("Value")
_JSON = (".jsonl", ".ndjson")
FORMS = (".parquet", ".csv", *_JSON)


class UserSource(Protocol):
    """Users in blocks, in the same order at each run, so that a killed run goes on by the number of a block.

    `count` is the number of users, None until it is known, and `is_whole` whether all ids of users print as
    whole numbers, known with the first block.
    """

    count: int | None
    is_whole: bool

    def blocks(self, size: int) -> Iterator[Load]:
        """Yield a call for each block of `size` users that reads their histories, in any thread."""


class FileUsers:
    """The users of a file with the history of each: a row is a request.

    Columns: `user_id`, `history` (a list of ids, or of structs of an `item` and a `kind`), perhaps
    `history_times` and `at`, and features of users and requests that the bundle reads.
    """

    _FIELDS = ("user_id", "history", "history_times", "at")

    def __init__(self, path: Path, conditions: Mapping[str, Any], now: int, bundle: Bundle) -> None:
        columns, features = columns_of(path), [feature.name for feature in bundle.user_features]
        for name in ("user_id", "history"):
            if name not in columns:
                remedy = (
                    "name the users' histories with --data or --store" if name == "history" else "rename one"
                )
                raise ColumnError(f"{path} has no column {name}, but {brief(', '.join(columns))}; {remedy}")
        for name in columns:
            if name not in (*self._FIELDS, *features):
                known = ", ".join((*self._FIELDS, *features))
                raise ColumnError(f"{path} has a column {name!r} that no request has; keep {known} only")
        self._path, self._conditions, self._now = path, conditions, now
        self._manifest = bundle.manifest
        self.is_whole = are_whole(path)
        with damage_told(path):
            self.count: int | None = scan(path).select(pl.len()).collect().item()

    def blocks(self, size: int) -> Iterator[Load]:
        """Users in the order of the file."""
        for number, rows in enumerate(in_blocks(rows_of_file(self._path, size), size)):
            yield lambda rows=rows, first=number * size: self._block(rows, first)  # type: ignore[misc]

    def _block(self, rows: Sequence[Mapping[str, Any]], first: int) -> Block:
        queries: list[Query] = []
        for number, row in enumerate(rows, first + 1):
            fields = {name: _as_in_json(value) for name, value in row.items() if value is not None}
            inputs = {name: fields.pop(name) for name in [*fields] if name not in self._FIELDS}
            for field, values in self._manifest.fields_of(inputs).items():
                fields[field] = values | (self._conditions.get(field) or {})
            fields = {"history": [], **self._conditions, **fields}
            request = request_of(fields, f"row {number} of {self._path}: ")
            if request.user_id is None:
                raise DataError(f"row {number} of {self._path} has no user_id; name a user in each row")
            queries.append(make_query(request, NO_HISTORY, (), self._now))
        return QueryBlock([_id(query.request.user_id) for query in queries], queries)


def _as_in_json(value: Any) -> Any:
    """A value of a table as a request has it: times, which Parquet has as such, as texts in ISO 8601."""
    if isinstance(value, list):
        return [_as_in_json(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def _id(user: Id | None) -> Id:
    assert user is not None
    return user


def in_blocks(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    """Yield the values in lists of `size`, the last one perhaps shorter."""
    rest = iter(values)
    while block := list(islice(rest, size)):
        yield block


def scan(path: Path) -> pl.LazyFrame:
    """Open a table. Raises SourceError for a file that is missing, or of another form than `FORMS`."""
    if not path.is_file():
        raise SourceError(f"{path} is no file; name a table in {', '.join(FORMS)}")
    if path.suffix == ".parquet":
        return pl.scan_parquet(path, glob=False)
    if path.suffix == ".csv":
        return pl.scan_csv(path, glob=False, infer_schema=False)
    if path.suffix in _JSON:
        # Of all rows: one far below may be the first with a time, or with an id that is no number.
        return pl.scan_ndjson(path, infer_schema_length=None)
    raise SourceError(f"{path}: its name should end in one of {', '.join(FORMS)}, which says how to read it")


def columns_of(path: Path) -> list[str]:
    """The names of a table's columns. Raises SourceError as `scan`, and for a damaged table."""
    with damage_told(path):
        return scan(path).collect_schema().names()


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Raise SourceError for a table that Polars can't read."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        line = brief(str(error).partition("\n")[0], 200)
        raise SourceError(f"{path} can't be read ({line}); write it again") from None


def rows_of_file(path: Path, size: int, column: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, some `size` of them in memory. Raises SourceError for a damaged one."""
    table = scan(path) if column is None else _column(path, column)
    if path.suffix in _JSON:
        yield from _rows_of_json(path, column)
        return
    with damage_told(path):
        for frame in table.collect_batches(chunk_size=size, maintain_order=True):
            yield from frame.iter_rows(named=True)


def _rows_of_json(path: Path, column: str | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON lines as they are: a column of one type would make texts of objects."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                raise SourceError(f"line {number} of {path} is not JSON ({error}); write it again") from None
            if not isinstance(row, dict):
                raise SourceError(f"line {number} of {path} is no JSON object; write one with a user_id")
            yield row if column is None else {column: row.get(column)}


def _column(path: Path, name: str) -> pl.LazyFrame:
    names = columns_of(path)
    if name not in names:
        raise ColumnError(f"{path} has no column {name}, but {brief(', '.join(names))}; rename one")
    return scan(path).select(name)


def refuse_repeated(path: Path) -> None:
    """Raise DataError for a file with two rows of one user, who would be listed twice."""
    with damage_told(path):
        users = _column(path, "user_id").drop_nulls().group_by("user_id").len()
        repeated = users.filter(pl.col("len") > 1).sort("user_id").head(1).collect(engine="streaming")
    for user, count in repeated.iter_rows():
        raise DataError(f"{path} has {count} rows of user {shown(user)}; keep one, as a list has a user once")


def ids_of_file(path: Path, size: int, column: str = "user_id") -> Iterator[list[Id]]:
    """Yield the ids of a table's column, `size` at a time. Raises DataError for a value that is no id."""
    for first, rows in enumerate(in_blocks(rows_of_file(path, size, column), size)):
        ids: list[Id] = []
        for number, row in enumerate(rows, first * size + 1):
            request = request_of({"user_id": row[column]}, f"row {number} of {path}: ")
            if request.user_id is None:
                raise DataError(f"row {number} of {path} has no {column}; name one in each row")
            ids.append(request.user_id)
        yield ids


def are_whole(path: Path, column: str = "user_id") -> bool:
    """Whether all ids of a table's column print as whole numbers of 64 bits."""
    if column not in columns_of(path):  # refused where the rows are read
        return False
    with damage_told(path):
        if scan(path).collect_schema()[column].is_nested():  # refused where the rows are read
            return False
        texts = pl.col(column).cast(pl.String)
        whole = texts.str.contains("^(0|-?[1-9][0-9]{0,17})$").fill_null(True).all()
        return bool(scan(path).select(whole).collect(engine="streaming").item())


def file_identity(path: Path | None) -> str:
    """The SHA-256 of a file, by which a run that goes on knows it; "" for None."""
    if path is None:
        return ""
    if not path.is_file():
        raise SourceError(f"{path} is no file; name a table in {', '.join(FORMS)}")
    return hash_file(path).sha256
