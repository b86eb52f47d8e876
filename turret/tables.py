"""Tables in memory, or paths of files, as arguments of the Python API."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from turret.data.errors import MissingExtraError, SourceError
from turret.data.extras import EXTRA_OF, install_command
from turret.data.stores import Place, is_url


@runtime_checkable
class Frame(Protocol):
    """A table in memory with the Arrow PyCapsule interface: of Polars, pandas (2.2 or later), PyArrow, ..."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as an Arrow stream."""


Table = Frame | str | PathLike[str]


class TablePaths(NamedTuple):
    """The paths of the tables of a log."""

    events: Place
    items: Place | None
    users: Place | None


@contextmanager
def table_paths(
    events: Table, items: Table | None = None, users: Table | None = None
) -> Iterator[TablePaths]:
    """Yield the path of each table; those in memory are written to files that the end of the block removes.

    Raises SourceError, with the name of the table, for one that is neither a path nor an Arrow table, and
    MissingExtraError for one of pandas without PyArrow.
    """
    with tempfile.TemporaryDirectory(prefix="turret-") as folder:
        work = Path(folder)
        yield TablePaths(
            _path("events", events, work),
            None if items is None else _path("items", items, work),
            None if users is None else _path("users", users, work),
        )


def _path(name: str, table: Table, work: Path) -> Place:
    if isinstance(table, str | PathLike):
        return table if isinstance(table, str) and is_url(table) else Path(table)
    if not isinstance(table, Frame):
        raise SourceError(
            f"{name} can't be read from a {type(table).__name__}; give a path, or a table that has "
            "__arrow_c_stream__ (of Polars, pandas 2.2 or later, PyArrow, ...)"
        )
    import polars as pl  # a path needs none

    path = work / f"{name}.parquet"
    try:
        frame = pl.DataFrame(table)
    except ImportError as error:  # tables of pandas are exported by PyArrow
        raise MissingExtraError(
            f"{name} can't be read from a {type(table).__name__} without pyarrow; "
            f"run: {install_command(EXTRA_OF['pyarrow'])}"
        ) from error
    frame.write_parquet(path)
    return path
