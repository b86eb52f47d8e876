"""Files as lazy tables with row numbers."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from turret.data.errors import SourceError, TextEncodingError
from turret.data.manifest import BadRows, Columns
from turret.data.reading.encodings import encoding_sentence
from turret.data.reading.schema import FeatureColumns
from turret.data.reading.source_settings import ColumnSettings, SourceSettings
from turret.data.rows import Engine, Rows

OWN = "__turret_"
"""The prefix of columns that are added to those of a file, which has no column with this prefix."""
ROW = f"{OWN}row"
EXAMPLES = 3


@dataclass(frozen=True)
class Malformed:
    """Lines that are not records: their number, and the first ones with line numbers."""

    count: int = 0
    examples: tuple[dict[str, Any], ...] = ()

    def and_line(self, row: int, problem: str) -> "Malformed":
        """Return these lines and one more line."""
        return Malformed(self.count + 1, (*self.examples, {"row": row, "problem": problem})[:EXAMPLES])

    def bad_rows(self, kind: str) -> BadRows:
        """Return the lines as bad rows of this kind."""
        return BadRows(kind=kind, count=self.count, examples=list(self.examples))

    def and_others(self, others: "Malformed") -> "Malformed":
        """Return these lines and `others`."""
        return Malformed(self.count + others.count, (*self.examples, *others.examples)[:EXAMPLES])


@dataclass(frozen=True)
class Table:
    """The rows of a file, or of the parts in a folder.

    `frame` has the file's columns and `ROW`, the line number of a CSV record or the 1-based number of the
    row. `is_text` means that all values are texts, as in CSV. `files` are the files, in order, and `starts`
    the numbers added to the rows of each part; without `starts`, rows of several files are numbered
    consecutively. `cut` returns the rows of `frame` in pieces of about so many rows, which several machines
    may read; without it they are one piece.
    """

    frame: pl.LazyFrame
    path: Path
    is_text: bool
    malformed: Malformed = Malformed()
    files: tuple[Path, ...] = ()
    starts: tuple[tuple[int, Path], ...] = ()
    cut: Callable[[int], list[pl.LazyFrame]] | None = None

    def pieces(self, count: int) -> list[pl.LazyFrame]:
        """Return the rows of `frame` in pieces, end to end, of about `count` rows where the file has such."""
        with readable(self.path):
            return [self.frame] if self.cut is None else self.cut(count)

    def rows(self, engine: Engine) -> Rows:
        """Return the rows, which `engine` reads."""
        return engine.rows(self.frame, self.pieces, self.path)

    def place(self, row: int) -> dict[str, Any]:
        """Return the number of a row in its file for messages, with the file's name if there are several."""
        starts, end = [*self.starts], 0
        for file in self.files if self.path.is_dir() and not starts else ():  # Parquet
            starts.append((end, file))
            with readable(file):
                end += pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()
        for start, file in reversed(starts):
            if row > start:
                return {"file": file.relative_to(self.path).as_posix(), "row": row - start}
        return {"row": row}

    @cached_property
    def columns(self) -> list[str]:
        """The column names of the file. Raises SourceError when it can't be read."""
        with readable(self.path):
            return [name for name in self.frame.collect_schema().names() if name != ROW]


def as_bytes(table: Table | None, size: int) -> bytes:
    """Write the table of a file, and the size of its content, for another process; None is an empty file."""
    if table is None:
        return b""
    malformed = {"count": table.malformed.count, "examples": table.malformed.examples}
    facts = json.dumps({"is_text": table.is_text, "malformed": malformed, "size": size}).encode()
    return b"\n".join([facts, table.frame.serialize()])


def from_bytes(content: bytes, path: Path) -> tuple[Table, int] | None:
    """Read the table of the file `path`, and the size of its content, as `as_bytes` wrote them."""
    if not content:
        return None
    line, _, frame = content.partition(b"\n")
    facts = json.loads(line)
    malformed = Malformed(facts["malformed"]["count"], tuple(facts["malformed"]["examples"]))
    table = Table(pl.LazyFrame.deserialize(BytesIO(frame)), path, facts["is_text"], malformed, (path,))
    return table, facts["size"]


@dataclass(frozen=True)
class Source:
    """The lazy tables of one data set.

    `parts` are the tables of events, each with the part (0 train, 1 validation, 2 test) of all its events, or
    None if the split is still to be made. `unread` are other files of a folder. `columns` are the columns of
    queries or of a log that is continued, else None; the features are the defaults of a known data set.
    `sources` are the tables of a log of several sources, with their settings.
    """

    parts: tuple[tuple[int | None, Table], ...]
    items: Table | None = None
    users: Table | None = None
    columns: ColumnSettings | None = None
    item_features: FeatureColumns | None = None
    user_features: FeatureColumns | None = None
    unread: tuple[Path, ...] = ()
    sources: tuple[tuple[SourceSettings, Table], ...] = ()

    @property
    def tables(self) -> list[Table]:
        """All tables: of events, of items and of users."""
        tables = [*(table for _, table in self.parts), self.items, self.users]
        return [table for table in tables if table is not None]

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [*dict.fromkeys(file for table in self.tables for file in table.files)]


@dataclass(frozen=True)
class LogSource:
    """One source of a log: its tables with the part of each, the columns by role, and its settings.

    `answers` is the answer log where rows name answers, else None.
    `context` has the columns of the contexts of all sources, some of which this source may lack.
    """

    parts: tuple[tuple[int | None, Table], ...]
    columns: Columns
    settings: SourceSettings
    answers: pl.LazyFrame | None = None
    context: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file of the first part, for messages."""
        return self.parts[0][1].path


def refuse_columns(names: Iterable[str], path: Path) -> None:
    """Raise SourceError for a name that begins with `OWN`, and for a name that Polars reads as a pattern."""
    for name in names:
        if name.startswith(OWN):
            raise SourceError(f"column {name!r} of {path} begins like those that turret adds; rename it")
        if re.fullmatch(r"\*|\^.*\$", name):
            raise SourceError(f"column {name!r} of {path} has the form of a pattern; rename it")


def have_common_type(*types: pl.DataType) -> bool:
    """Tell whether values of these types make one column, by the rules of Polars.

    However, lists and records do not mix with texts or numbers, nor days or spans of time with numbers.
    """
    kinds = {pl.List if isinstance(dtype, pl.Array) else dtype.base_type() for dtype in types} - {pl.Null}
    are_days = pl.Date in kinds and any(dtype.is_numeric() for dtype in types)
    are_spans = bool(kinds & {pl.Time, pl.Duration}) and pl.String not in kinds
    if len(kinds) > 1 and (are_days or are_spans or any(dtype.is_nested() for dtype in types)):
        return False
    try:
        pl.concat([pl.Series([], dtype=dtype).to_frame("") for dtype in types], how="vertical_relaxed")
    except pl.exceptions.PolarsError:
        return False
    return True


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn polars' errors on reading `path` into a SourceError.

    Polars can't open a path with bytes that are not UTF-8, so such a path is refused before the block.
    """
    if re.search("[\ud800-\udfff]", str(path)):
        raise SourceError(f"the name {str(path)!r} is not UTF-8; rename the file or the folder")
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"there is no file {path}") from None
    except UnicodeError:
        raise TextEncodingError(encoding_sentence(path, "utf-8")) from None
    except (pl.exceptions.PolarsError, OSError) as error:
        # The text behind the reason is about options of Polars.
        reason = re.split(r",? (?:hint:|consider passing)", str(error).strip().split("\n")[0])[0]
        if "utf-8" in reason.lower() or "utf8" in reason.lower():
            raise TextEncodingError(encoding_sentence(path, "utf-8")) from None
        raise SourceError(f"{path} can't be read: {reason}") from None
