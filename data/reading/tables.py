"""Files as lazy tables with row numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from turret.data.errors import SourceError
from turret.data.reading.schema import ColumnSettings, FeatureColumns

ROW = "__row"
EXAMPLES = 3


@dataclass(frozen=True)
class Malformed:
    """Lines that are not records: their number, and the first ones with line numbers."""

    count: int = 0
    examples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Table:
    """The rows of a file, or of the parts in a folder.

    `frame` has the file's columns and `ROW`, the line number of a CSV record or the 1-based number of the
    row. `is_text` means that all values are texts, as in CSV, `has_header` that its names are a line of the
    file. `files` are the files, in order; `is_parquet` tells that they are all uncompressed Parquet, whose
    rows are numbered consecutively. `pieces` are the tables of other parts, each with the number added to its
    rows.
    """

    frame: pl.LazyFrame
    path: Path
    is_text: bool
    malformed: Malformed = Malformed()
    files: tuple[Path, ...] = ()
    is_parquet: bool = False
    has_header: bool = False
    pieces: tuple[tuple[int, "Table"], ...] = ()

    def locate(self, row: int) -> tuple[Path, int]:
        """Return the file of row `row`, and its number in that file."""
        for start, piece in reversed(self.pieces):
            if row > start:
                return piece.path, row - start
        for file in self.files if self.is_parquet else ():
            with readable(file):
                rows = pl.scan_parquet(file, glob=False).select(pl.len()).collect(engine="streaming").item()
            if row <= rows:
                return file, row
            row -= rows
        return self.path, row

    def place(self, row: int) -> dict[str, Any]:
        """Return the number of a row in its file for messages, with the name of that file among several."""
        file, number = self.locate(row)
        named = {} if file == self.path else {"file": file.relative_to(self.path).as_posix()}
        return {**named, "row": number}

    def columns(self) -> list[str]:
        """Return the column names of the file. Raises SourceError when it can't be read."""
        with readable(self.path):
            return [name for name in self.frame.collect_schema().names() if name != ROW]


@dataclass(frozen=True)
class Source:
    """The lazy tables of one data set.

    `parts` are the tables of events, each with the part (0 train, 1 validation, 2 test) of all its events, or
    None if the split is still to be made. `files` are the source files, for the manifest, and `unread` the
    other files of a folder. `columns` and the features are the defaults of a known data set, else None.
    """

    parts: tuple[tuple[int | None, Table], ...]
    items: Table | None
    users: Table | None
    files: tuple[Path, ...]
    columns: ColumnSettings | None = None
    item_features: FeatureColumns | None = None
    user_features: FeatureColumns | None = None
    unread: tuple[Path, ...] = ()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn polars' errors on reading `path` into a SourceError."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"there is no file {path}") from None
    except UnicodeError:
        raise SourceError(encoding_sentence(path, "utf-8")) from None
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        if "utf-8" in reason.lower() or "utf8" in reason.lower():
            raise SourceError(encoding_sentence(path, "utf-8")) from None
        raise SourceError(f"{path} can't be read: {reason}") from None


def encoding_sentence(path: Path, encoding: str) -> str:
    """Return the message that `path` is not in `encoding`."""
    others = [name for name in ("utf-8", "cp1252", "latin-1", "utf-16") if name != encoding.lower()]
    return f"{path} is not text in the encoding {encoding!r}; try --encoding {', '.join(others)}"
