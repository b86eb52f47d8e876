"""Histories in one SQLite file: what was acknowledged is on the disk."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from service.history.contract import Event
from service.history.grouping import Grouping, Written
from service.history.sqlite_file import connect, open_file, transaction
from service.history.window import first_kept, still_kept

Result = TypeVar("Result")

_INSERT = (
    "INSERT INTO events (event_id, user, item, time, kind) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (event_id) DO NOTHING"
)
_NEWEST = (
    "SELECT event_id, user, item, time, kind FROM events WHERE user = ? AND time >= ? "
    "ORDER BY time DESC, arrival DESC LIMIT ?"
)
_COUNT = "SELECT count(*) FROM events WHERE user = ? AND time >= ?"
_SWEEP = "DELETE FROM events WHERE arrival > ? AND arrival <= ? AND time < ?"
_WAIT_TO_WRITE, _WAIT_TO_READ = 2.0, 0.25  # seconds to wait for another process's lock
_SWEPT = 1_000  # arrivals that each append looks through for what is too old
_FIRST = -(2**63)
_KINDS = frozenset({(str, str, item, int, kind) for item in (int, str) for kind in (str, type(None))})


class SqliteHistory:
    """A HistoryStore in WAL mode: one thread with one connection writes, another reads beside it.

    Several processes may have the same file open. Every append is synced to the disk before it returns
    (synchronous=FULL), together with those that came meanwhile. Reads have a thread too: the hop costs about
    25 microseconds more than the read itself, and the event loop never waits for a disk. `keep` is that of
    HistoryStore; each append also deletes some of what is older. Raises ServiceError when `path` can't hold a
    store.
    """

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self._path = path
        self._keep = keep
        self._swept = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writing = open_file(path, _WAIT_TO_WRITE)
            self._reading = connect(path, _WAIT_TO_READ)
            self._identity = _identity(path)
        except (OSError, sqlite3.Error) as error:
            raise ServiceError(
                f"the histories can't be kept in {path}: {error}; name a writable place with --store "
                "sqlite:///PATH, or move the file away if it is damaged"
            ) from None
        self._writer = ThreadPoolExecutor(1, "history-writer")
        self._reader = ThreadPoolExecutor(1, "history-reader")
        self._appends = Grouping(self._writer, self._insert_all)

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        return await self._known(self._appends.append(events))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, list[Event]]:
        """Return the newest events of each user; see HistoryStore."""
        return await self._run(self._reader, lambda: {user: self._newest(user, limit) for user in users})

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        return await self._run(self._reader, lambda: (self._count(user), self._newest(user, limit)))

    async def forget(self, user: str) -> int:
        """Delete a user's events, from the file's free pages too; see HistoryStore."""
        return await self._run(self._writer, lambda: self._delete(user))

    async def notes(self) -> list[str]:
        """Nothing: what is acknowledged is on the disk."""
        return []

    async def close(self) -> None:
        """Finish what is under way and close the file."""
        await asyncio.to_thread(self._close)

    async def _run(self, executor: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        return await self._known(asyncio.get_running_loop().run_in_executor(executor, work))

    async def _known(self, call: Awaitable[Result]) -> Result:
        try:
            return await call
        except (sqlite3.Error, OSError) as error:
            raise HistoryUnavailableError(
                f"the histories in {self._path.name} can't be used now: {error}"
            ) from None

    def _insert_all(self, calls: Sequence[Sequence[Event]]) -> list[Written]:
        """Write calls together; where that fails, each alone, as one may be too large for the disk."""
        try:
            return list(self._insert(calls))
        except (sqlite3.Error, OSError) as error:
            if len(calls) == 1:
                return [error]
        return [self._insert_all([events])[0] for events in calls]

    def _insert(self, calls: Sequence[Sequence[Event]]) -> list[int]:
        self._check_place()
        first = first_kept(self._keep)
        stored = []
        with transaction(self._writing) as connection:
            for events in calls:
                before = connection.total_changes
                connection.executemany(_INSERT, still_kept(events, first))
                stored.append(connection.total_changes - before)
            if first is not None:
                self._sweep(connection, first)
        return stored

    def _sweep(self, connection: sqlite3.Connection, first: int) -> None:
        """Delete what is older than `first` of the next arrivals; after the last comes the first again."""
        connection.execute(_SWEEP, (self._swept, self._swept + _SWEPT, first))
        (newest,) = connection.execute("SELECT coalesce(max(arrival), 0) FROM events").fetchone()
        self._swept = self._swept + _SWEPT if self._swept + _SWEPT < newest else 0

    def _delete(self, user: str) -> int:
        self._check_place()
        first = self._first()
        with transaction(self._writing) as connection:
            (counted,) = connection.execute(_COUNT, (user, first)).fetchone()
            connection.execute("DELETE FROM events WHERE user = ?", (user,))
        return int(counted)

    def _newest(self, user: str, limit: int) -> list[Event]:
        rows = self._reading.execute(_NEWEST, (user, self._first(), limit)).fetchall()
        rows.reverse()
        if not {tuple(map(type, row)) for row in rows} <= _KINDS:
            raise HistoryDamagedError(
                f"{self._path.name} holds something of a user that isn't an event; move the file away"
            )
        return list(map(Event._make, rows))

    def _count(self, user: str) -> int:
        (count,) = self._reading.execute(_COUNT, (user, self._first())).fetchone()
        return int(count)

    def _first(self) -> int:
        first = first_kept(self._keep)
        return _FIRST if first is None else first

    def _check_place(self) -> None:
        """What goes into a file that has been moved or deleted would be gone after a restart."""
        if _identity(self._path) != self._identity:
            raise sqlite3.OperationalError("the file was replaced by another; start the service again")

    def _close(self) -> None:
        self._reader.shutdown()
        self._writer.shutdown()
        self._reading.close()
        self._writing.close()


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
