"""Durable, private SQLite files, or databases in memory: opening, threads, transactions, group commit.

Group commit: appends that arrive during a write are written together, with one disk sync.
"""

import asyncio
import logging
import os
import sqlite3
import stat
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.stores.contract import Event

Result = TypeVar("Result")
WriteResult = int | Exception
Write = Callable[[Sequence[Sequence[Event]]], Sequence[WriteResult]]
Work = Callable[[sqlite3.Connection], Sequence[WriteResult]]
_GROUP_CALLS, _GROUP_EVENTS = 256, 5_000  # larger groups only add latency

_BUSY_SECONDS = 5.0  # for processes that start together
_PRIMARY_CODE = 0xFF  # mask of an extended error code
_SUFFIXES = ("", "-wal", "-shm", "-journal")  # SQLite creates the others with the mode of the first
_log = logging.getLogger("turret.store")


class Tables(NamedTuple):
    """The schema of a file: its format number, statements that create it, a query that reads all columns."""

    format: int
    create: str
    probe: str


class Worker:
    """A connection, and with a `name` the thread that all its statements run in.

    A thread costs a call about 25 microseconds and keeps disk waits out of the event loop. A database in
    memory has no disk to wait for.
    """

    def __init__(self, connection: sqlite3.Connection, name: str | None) -> None:
        self.connection = connection
        self._thread = ThreadPoolExecutor(1, name) if name else None
        weakref.finalize(self, connection.close)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread and return its result."""
        if self._thread is None:
            return work(self.connection)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.connection)

    def close(self) -> None:
        """Finish running calls and close the connection."""
        if self._thread is not None:
            self._thread.shutdown()
        self.connection.close()


def connect(path: Path | None, wait: float) -> sqlite3.Connection:
    """Connect to a file; `wait` is the seconds to wait for another connection's lock. None: in memory."""
    connection = sqlite3.connect(
        path or ":memory:", timeout=wait, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def open_file(path: Path | None, wait: float, tables: Tables) -> sqlite3.Connection:
    """Connect to a file (None: in memory), and create its tables in a new one.

    Raises ServiceError for an unknown format, OSError and sqlite3.Error. A complete file is not written, so
    it opens on a full disk. The file is private, see `make_private`.
    """
    if path is not None:
        make_private(path)
    begun = time.monotonic()
    while True:
        connection = connect(path, wait)
        try:
            _prepare(connection, path, tables)
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            # Switching to WAL fails at once while another process does so, whatever the lock timeout.
            is_busy = error.sqlite_errorcode & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() - begun > _BUSY_SECONDS:
                raise
            time.sleep(0.02)
        except BaseException:
            connection.close()
            raise


def remedy(error: OSError | sqlite3.Error) -> str:
    """Name a remedy for a file that can't be opened."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code == sqlite3.SQLITE_BUSY:
        return "another process has locked it; start again when that has finished"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full: free some space"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "it is damaged: move it away, or restore a copy"
    return "name a writable path with --store sqlite:///PATH"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a write transaction: commit on success, roll back on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def make_private(path: Path) -> None:
    """Create a file with mode 0600, and missing folders with mode 0700: the contents are personal data.

    An existing file and its SQLite companions get mode 0600; a warning is logged where another user owns
    them. Raises OSError.
    """
    _make_folder(path.parent)
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for suffix in _SUFFIXES:
        _restrict(path.with_name(path.name + suffix))


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _restrict(path: Path) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(0o600)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning(
            "%s is readable by other users (mode %o), and its mode can't be changed (%s); have its owner set "
            "0600",
            path,
            mode,
            error.strerror,
        )


def _prepare(connection: sqlite3.Connection, path: Path | None, tables: Tables) -> None:
    version = _format(connection)
    if version not in (0, tables.format):
        raise ServiceError(
            f"{path} has format {version}, and this release reads {tables.format}; name another file"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    if version != tables.format:
        with transaction(connection):
            if not _format(connection):  # else another process was quicker
                for statement in tables.create.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {tables.format}")
    connection.execute(tables.probe).fetchone()


def _format(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


class _Call(NamedTuple):
    events: Sequence[Event]
    stored: "asyncio.Future[int]"


class GroupCommit:
    """Collects calls' events and writes one group at a time: `run` is that of the writing `Worker`.

    `write` takes each call's events and returns for each the number of new events or its error. A group never
    waits to fill: while nothing is being written, a single call is a group.
    """

    def __init__(self, run: Callable[[Work], Awaitable[Sequence[WriteResult]]], write: Write) -> None:
        self._run = run
        self._write = write
        self._waiting: list[_Call] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[Event]) -> int:
        """Write events in the next group and return the number of new ones. Raises the error of `write`."""
        loop = asyncio.get_running_loop()
        call = _Call(events, loop.create_future())
        self._waiting.append(call)
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        return await call.stored

    async def _write_all(self) -> None:
        while calls := self._next():

            def work(_: object, calls: Sequence[_Call] = calls) -> Sequence[WriteResult]:
                return self._write([call.events for call in calls])

            try:
                written = await self._run(work)
            except Exception as error:  # of the thread, which is shut down when the service ends
                reason = f"history store closed: {error}"
                written = [HistoryUnavailableError(reason) for _ in calls]
            _settle(calls, written)

    def _next(self) -> list[_Call]:
        """Take the next calls, without cancelled ones."""
        calls: list[_Call] = []
        events = 0
        while self._waiting and len(calls) < _GROUP_CALLS and events < _GROUP_EVENTS:
            call = self._waiting.pop(0)
            if not call.stored.done():
                calls.append(call)
                events += len(call.events)
        return calls


def _settle(calls: Sequence[_Call], written: Sequence[WriteResult]) -> None:
    for call, result in zip(calls, written, strict=True):
        if call.stored.done():
            continue
        if isinstance(result, Exception):
            call.stored.set_exception(result)
        else:
            call.stored.set_result(result)
