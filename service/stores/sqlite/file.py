"""Durable, private SQLite files, or databases in memory: opening, threads, transactions, group commit.

Group commit: appends that arrive during a write are written together, with one disk sync.
"""

import asyncio
import logging
import os
import sqlite3
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
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
    memory has no disk to wait for. `failing` makes the error that a call raises of one of SQLite or the disk.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        name: str | None,
        failing: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        self.connection = connection
        self._thread = ThreadPoolExecutor(1, name) if name else None
        self._failing = failing
        weakref.finalize(self, connection.close)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` in the thread and return its result."""
        try:
            if self._thread is None:
                return work(self.connection)
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self.connection)
        except (sqlite3.Error, OSError) as error:
            raise self._failing(error) from None

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
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        connection = connect(path, wait)
        try:
            _prepare(connection, path, tables)
            return connection
        except BaseException as error:
            connection.close()
            # Switching to WAL fails at once while another process does so, whatever the lock timeout.
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.02)


def remedy(error: OSError | sqlite3.Error) -> str:
    """Name a remedy for a file that can't be opened."""
    code = _code(error)
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
        file = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                _restrict(file)


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _restrict(file: Path) -> None:
    try:
        file.chmod(0o600)
    except PermissionError:
        _log.warning("%s is readable by other users and not yours; have its owner set mode 0600", file)


def _code(error: BaseException) -> int:
    """SQLite's primary code of an error, 0 for another error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY_CODE


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


class GroupCommit:
    """Collects calls' events and writes one group at a time: `run` is that of the writing `Worker`.

    `write` takes each call's events and returns for each the number of new events or its error. A group never
    waits to fill: while nothing is being written, a single call is a group.
    """

    def __init__(self, run: Callable[[Work], Awaitable[Sequence[WriteResult]]], write: Write) -> None:
        self._run = run
        self._write = write
        self._waiting: list[tuple[Sequence[Event], asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[Event]) -> int:
        """Write events in the next group and return the number of new ones. Raises the error of `write`."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[int] = loop.create_future()
        self._waiting.append((events, stored))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write_all())
        return await stored

    async def _write_all(self) -> None:
        while group := self._next():
            work = partial(self._work, [events for events, _ in group])
            try:
                written = await self._run(work)
            except Exception as error:  # of the thread, which is shut down when the service ends
                written = [HistoryUnavailableError(f"history store closed: {error}")] * len(group)
            for (_, stored), result in zip(group, written, strict=True):
                if stored.done():  # cancelled meanwhile
                    continue
                if isinstance(result, Exception):
                    stored.set_exception(result)
                else:
                    stored.set_result(result)

    def _work(self, calls: Sequence[Sequence[Event]], _: sqlite3.Connection) -> Sequence[WriteResult]:
        return self._write(calls)

    def _next(self) -> list[tuple[Sequence[Event], "asyncio.Future[int]"]]:
        """Take the next calls, without cancelled ones."""
        group: list[tuple[Sequence[Event], asyncio.Future[int]]] = []
        count = 0
        while self._waiting and len(group) < _GROUP_CALLS and count < _GROUP_EVENTS:
            events, stored = self._waiting.pop(0)
            if not stored.done():
                group.append((events, stored))
                count += len(events)
        return group
