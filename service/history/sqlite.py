"""Histories in one SQLite file: what was acknowledged is on the disk."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from service.errors import HistoryUnavailableError, ServiceError
from service.history.contract import Event

Result = TypeVar("Result")

_SCHEMA_VERSION = 1
# `item` has no type, so that an integer comes back as an integer and a text as a text.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    arrival INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    item NOT NULL,
    time INTEGER NOT NULL,
    kind TEXT
);
CREATE INDEX IF NOT EXISTS events_by_user ON events (user, time, arrival);
"""
_INSERT = (
    "INSERT INTO events (event_id, user, item, time, kind) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (event_id) DO NOTHING"
)
_NEWEST = (
    "SELECT event_id, user, item, time, kind FROM events WHERE user = ? "
    "ORDER BY time DESC, arrival DESC LIMIT ?"
)
_WAIT_TO_WRITE, _WAIT_TO_READ = 2.0, 0.25  # seconds to wait for another process's lock


class SqliteHistory:
    """A HistoryStore in WAL mode: one thread with one connection writes, another reads beside it.

    Every append is synced to the disk before it returns (synchronous=FULL). Raises ServiceError when `path`
    can't hold a store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writing = _connect(path, _WAIT_TO_WRITE)
            _prepare(self._writing, path)
            self._reading = _connect(path, _WAIT_TO_READ)
        except (OSError, sqlite3.Error) as error:
            raise ServiceError(
                f"the histories can't be kept in {path}: {error}; name a writable place with --store "
                "sqlite:///PATH, or move the file away if it is damaged"
            ) from None
        self._writer = ThreadPoolExecutor(1, "history-writer")
        self._reader = ThreadPoolExecutor(1, "history-reader")

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        rows = [(event.event_id, event.user, event.item, event.time, event.kind) for event in events]
        return await self._run(self._writer, lambda: self._insert(rows))

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, list[Event]]:
        """Return the newest events of each user; see HistoryStore."""
        return await self._run(self._reader, lambda: {user: self._newest(user, limit) for user in users})

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        return await self._run(self._reader, lambda: (self._count(user), self._newest(user, limit)))

    async def forget(self, user: str) -> int:
        """Delete a user's events, from the file's free pages too; see HistoryStore."""
        return await self._run(self._writer, lambda: self._delete(user))

    async def close(self) -> None:
        """Finish what is under way and close the file."""
        await asyncio.to_thread(self._close)

    async def _run(self, executor: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work)
        except sqlite3.Error as error:
            raise HistoryUnavailableError(
                f"the histories in {self._path.name} can't be used now: {error}"
            ) from None

    def _insert(self, rows: Sequence[tuple[str, str, int | str, int, str | None]]) -> int:
        with _transaction(self._writing) as connection:
            before = connection.total_changes
            connection.executemany(_INSERT, rows)
            return connection.total_changes - before

    def _delete(self, user: str) -> int:
        with _transaction(self._writing) as connection:
            return connection.execute("DELETE FROM events WHERE user = ?", (user,)).rowcount

    def _newest(self, user: str, limit: int) -> list[Event]:
        return [Event(*row) for row in self._reading.execute(_NEWEST, (user, limit))][::-1]

    def _count(self, user: str) -> int:
        (count,) = self._reading.execute("SELECT count(*) FROM events WHERE user = ?", (user,)).fetchone()
        return int(count)

    def _close(self) -> None:
        self._reader.shutdown()
        self._writer.shutdown()
        self._reading.close()
        self._writing.close()


def _connect(path: Path, wait: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found not in (0, _SCHEMA_VERSION):
        raise ServiceError(
            f"{path} has format {found}, and this turret reads {_SCHEMA_VERSION}; name another file"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(_SCHEMA + f"PRAGMA user_version = {_SCHEMA_VERSION};")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
