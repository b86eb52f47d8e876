"""Durable, private SQLite files, or databases in memory: opening, threads, transactions."""

import asyncio
import logging
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from turret.service.errors import ServiceError

Result = TypeVar("Result")

_BUSY_SECONDS = 5.0  # to wait for processes that start together
_DAMAGED = "it is damaged: move it away, or restore a copy"
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process has locked it; start again when that has finished",
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_log = logging.getLogger("turret.store")


class Database:
    """A connection, and with a `name` the thread that all its statements run in.

    A thread costs a call about 25 microseconds and keeps disk waits out of the event loop. `failing` converts
    an error of SQLite or of the disk into the one that a call raises.
    """

    def __init__(
        self, connection: sqlite3.Connection, name: str | None, failing: Callable[[Exception], Exception]
    ) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, name) if name else None
        self._failing = failing
        weakref.finalize(self, connection.close)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread and return its result."""
        try:
            if self._thread is None:
                return work(self._connection)
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        except (sqlite3.Error, OSError) as error:
            raise self._failing(error) from None

    async def write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread in a write transaction, unless its caller has given up by then.

        A late write would otherwise undo changes that others were told of meanwhile.
        """
        is_awaited = True

        def write(connection: sqlite3.Connection) -> Result:
            with transaction(connection):
                if not is_awaited:
                    raise sqlite3.OperationalError("the caller has given up")
                return work(connection)

        try:
            return await self.run(write)
        except asyncio.CancelledError:
            is_awaited = False
            raise

    async def close(self) -> None:
        """Finish running calls and close the connection."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.shutdown)
        self._connection.close()


def connect(path: Path | None, wait: float) -> sqlite3.Connection:
    """Connect to a file; `wait` is the seconds to wait for another connection's lock. None: in memory."""
    connection = sqlite3.connect(
        path or ":memory:", timeout=wait, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def open_file(
    path: Path | None,
    wait: float,
    tables: str,
    version: int = 1,
    remedy: str = "name a writable path with --store sqlite:///PATH",
    column: tuple[str, str] | None = None,
) -> sqlite3.Connection:
    """Connect to a file (None: in memory); a new file gets `tables`, in the format `version`.

    `column` names a table and a column, which a file of an earlier release gets here: it is one of texts,
    null in all rows, so earlier releases of the same format go on reading and writing the file.

    Raises ServiceError, which ends with `remedy` where a path can't be written. A complete file is not
    written, so it opens on a full disk. The file is private, see `make_private`.
    """
    try:
        if path is not None:
            make_private(path)
        return _open(path, wait, tables, version, column)
    except (OSError, sqlite3.Error) as error:
        remedy = _REMEDIES.get(error_code(error), remedy)
        raise ServiceError(f"{path} can't be opened: {error}; {remedy}") from None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction: commit on success, roll back on any error."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def make_private(path: Path) -> None:
    """Create a file with mode 0600, and missing folders with mode 0700: the contents are personal data.

    An existing file gets mode 0600; a warning is logged where another user owns it. SQLite creates the files
    beside this one with its mode. Raises OSError.
    """
    make_parents(path)
    if not path.exists():
        path.touch(0o600)
    if path.is_file() and path.stat().st_mode & 0o077:
        try:
            path.chmod(0o600)
        except PermissionError:
            _log.warning("%s is readable by other users and not yours; have its owner set mode 0600", path)


def make_parents(path: Path) -> None:
    """Make the missing folders of a file, for its user alone. Raises OSError."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def _open(
    path: Path | None, wait: float, tables: str, version: int, column: tuple[str, str] | None
) -> sqlite3.Connection:
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        connection = connect(path, wait)
        try:
            _prepare(connection, path, tables, version)
            if column is not None:
                _add_column(connection, *column)
            return connection
        except BaseException as error:
            connection.close()
            # Switching to WAL fails at once while another process does so, whatever the lock timeout.
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _prepare(connection: sqlite3.Connection, path: Path | None, tables: str, version: int) -> None:
    query = "PRAGMA user_version"
    (stored,) = connection.execute(query).fetchone()
    if stored not in (0, version):
        raise ServiceError(f"{path} has format {stored}, and this release reads {version}; name another file")
    connection.execute("PRAGMA journal_mode = WAL")
    if stored != version:
        with transaction(connection):
            if connection.execute(query).fetchone() == (0,):  # else another process was quicker
                for statement in tables.split(";"):
                    connection.execute(statement)
                connection.execute(f"{query} = {version}")


def _add_column(connection: sqlite3.Connection, table: str, name: str) -> None:
    exists = f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{name}'"
    if connection.execute(exists).fetchone() is None:
        with transaction(connection):
            if connection.execute(exists).fetchone() is None:  # else another process was quicker
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} TEXT")


def error_code(error: BaseException) -> int:
    """SQLite's primary code of an error, 0 for another error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
