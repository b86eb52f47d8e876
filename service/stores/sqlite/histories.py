"""Histories in an SQLite file, synced to the disk before an event is acknowledged, or in memory."""

import asyncio
import os
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import (
    ARRIVALS_KEPT,
    ARRIVALS_PAGE,
    COUNT_LIMIT,
    Arrival,
    Arrivals,
    Event,
    History,
    Moved,
    StoreKind,
    Stores,
    drop_expired,
    event_digest,
    oldest_kept,
)
from turret.service.stores.sqlite.file import Database, connect, error_code, open_file, transaction
from turret.service.stores.sqlite.shared import SqliteItems

_Position = tuple[str | bytes, int, int]  # the primary key of a row: user, time, arrival

# The primary key places a history on neighbouring pages; the unique key finds a user's event id. `item` has
# no type: integers come back as integers, texts as texts. `arrival` counts a user's events of equal time.
_VERSION = 2
_TABLES = """
CREATE TABLE events (
    user TEXT NOT NULL,
    time INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    item NOT NULL,
    kind TEXT,
    answer_id TEXT,
    PRIMARY KEY (user, time, arrival),
    UNIQUE (user, event_id),
    CHECK (typeof(user) = 'text' AND typeof(event_id) = 'text' AND typeof(time) = 'integer'
        AND typeof(item) IN ('integer', 'text') AND typeof(kind) IN ('text', 'null'))
) WITHOUT ROWID;
"""
# The newest events in the order in which they were stored, for all processes that count them. A file of an
# earlier release gets the table with its next event.
_ARRIVALS = """
CREATE TABLE IF NOT EXISTS arrivals (
    number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT, item, time INTEGER, kind TEXT
)
"""
# Each connection that writes lists the rows that it inserts, but for those that `move` inserts again.
_LIST_ARRIVALS = """
CREATE TEMP TABLE moving (is_moving INTEGER);
CREATE TEMP TRIGGER listed AFTER INSERT ON main.events WHEN NOT EXISTS (SELECT 1 FROM temp.moving) BEGIN
    INSERT INTO arrivals (digest, item, time, kind)
    VALUES (event_digest(NEW.user, NEW.event_id), NEW.item, NEW.time, NEW.kind);
END;
"""
_DROP_ARRIVALS = "DELETE FROM arrivals WHERE number <= (SELECT max(number) FROM arrivals) - ?"
_ARRIVED = "SELECT number, digest, item, time, kind FROM arrivals WHERE number > ? ORDER BY number LIMIT ?"
_ARRIVAL_ENDS = "SELECT coalesce(min(number), 1), coalesce(max(number), 0) FROM arrivals"

_INSERT = (
    "INSERT INTO events (event_id, user, item, time, kind, answer_id, arrival) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, "
    "(SELECT coalesce(max(arrival), 0) + 1 FROM events WHERE user = ?2 AND time = ?4)) "
    "ON CONFLICT (user, event_id) DO NOTHING"
)
_OF_USER = "FROM events WHERE user = ? AND time >= ? ORDER BY time DESC, arrival DESC LIMIT ?"
_NEWEST = f"SELECT event_id, user, item, time, kind, answer_id {_OF_USER}"
_USED = f"SELECT item, time, kind {_OF_USER}"
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_OF_USER})"
_TAKE_OLDEST = (
    "DELETE FROM events WHERE user = ?1 AND (time, arrival) IN "
    "(SELECT time, arrival FROM events WHERE user = ?1 ORDER BY time, arrival LIMIT ?2) "
    "RETURNING time, arrival, event_id, item, kind, answer_id"
)
_AFTER = "FROM events WHERE (user, time, arrival) > (?, ?, ?)"
_AFTER_END = f"SELECT user, time, arrival {_AFTER} ORDER BY user, time, arrival LIMIT 1 OFFSET ?"
_UNTIL = f"{_AFTER} AND (user, time, arrival) <= (?, ?, ?)"
_SWEEP = f"DELETE {_UNTIL} AND time < ?"
_ORDER = "ORDER BY user, time, arrival"
_SCAN = f"SELECT event_id, user, item, time, kind, answer_id {_UNTIL} AND time >= ? AND time < ? {_ORDER}"
_WRITE_LOCK_SECONDS, _READ_LOCK_SECONDS = 2.0, 0.25  # to wait for another process's lock
_GROUP_EVENTS = 5_000  # written together; larger groups only add latency
_SHORT = 1_000  # events of a user; longer reads have a thread of their own
_TAKEN_PORTION = 10_000  # events of one transaction of `forget` and `move`
_SCAN_PORTION = 10_000  # rows that one read of `scan` visits
_SWEEP_PORTION = 1_000  # events that each append checks for expiry
_FIRST, _LAST = -(2**63), 2**63 - 1
_BEGINNING, _END = ("", _FIRST, _FIRST), (b"", _LAST, _LAST)  # SQLite orders bytes after all texts
_USER = itemgetter(1)  # the field of an event


@dataclass(eq=False)
class _Append:
    """The events of a call to `append`, and after the write the number of new events, or the error.

    A call that is cancelled takes its events back: written later, they would outlive a `forget` in between.
    """

    events: Sequence[Event]
    outcome: int | Exception | None = None


class SqliteHistory:
    """A HistoryStore in WAL mode: one thread writes, two threads read, each with its own connection.

    Several processes may open the same file. Appends that arrive during a write are written together, with
    one disk sync (synchronous=FULL). Long reads have their own thread, so that short reads of other users
    don't wait for them. With `keep_days` each append also deletes some expired events. Without a path, the
    histories are in memory, in one connection without a thread. Raises ServiceError when the file can't be
    opened.
    """

    def __init__(self, path: Path | None = None, keep_days: float | None = None) -> None:
        self._path = path
        self._name = f"history store {path.name if path else 'in memory'}"
        self._keep_days = keep_days
        self._sweep_position: _Position = _BEGINNING
        self._waiting: deque[_Append] = deque()
        self._writing: asyncio.Task[None] | None = None
        writer = open_file(path, _WRITE_LOCK_SECONDS, _TABLES, _VERSION, column=("events", "answer_id"))
        writer.create_function("event_digest", 2, event_digest, deterministic=True)
        writer.executescript(_LIST_ARRIVALS)
        self._lists_arrivals = False
        self._writer = Database(writer, "history-writer" if path else None, self._unavailable)
        self._short = self._long = self._writer
        if path is not None:
            short, long = (connect(path, _READ_LOCK_SECONDS) for _ in range(2))
            self._short = Database(short, "history-reader", self._unavailable)
            self._long = Database(long, "history-long-reader", self._unavailable)
            self._identity = _identity(path)

    async def append(self, events: Sequence[Event]) -> int:
        call = _Append(events)
        self._waiting.append(call)
        try:
            while call.outcome is None:
                if self._writing is None or self._writing.done():
                    self._writing = asyncio.create_task(self._writer.run(self._write_group))
                await asyncio.shield(self._writing)
        except asyncio.CancelledError:
            call.events = ()
            raise
        if isinstance(call.outcome, Exception):
            raise call.outcome
        return call.outcome

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        oldest, reader = oldest_kept(self._keep_days), self._short if limit <= _SHORT else self._long

        def read(connection: sqlite3.Connection) -> dict[str, History]:
            newest = {user: connection.execute(_USED, (user, oldest, limit)).fetchall() for user in users}
            return {user: History.of(rows[::-1]) for user, rows in newest.items()}

        return await reader.run(read)

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        oldest = oldest_kept(self._keep_days)

        def read(connection: sqlite3.Connection) -> tuple[int, list[Event]]:
            (count,) = connection.execute(_COUNT, (user, oldest, COUNT_LIMIT)).fetchone()
            rows = connection.execute(_NEWEST, (user, oldest, limit)).fetchall()
            return int(count), [Event(*row) for row in reversed(rows)]

        return await self._long.run(read)

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        position: _Position = _BEGINNING
        first = max(first, oldest_kept(self._keep_days))

        def read(connection: sqlite3.Connection) -> tuple[list[Event], _Position]:
            end = _portion_end(connection, position, _SCAN_PORTION)
            rows = connection.execute(_SCAN, (*position, *end, first, last))
            return list(map(Event._make, rows)), end

        # Each read visits a fixed number of rows, so that no read lasts long where few rows are in the range.
        while position != _END:
            events, position = await self._long.run(read)
            if events:
                yield events

    async def arrivals(self, after: str | None) -> Arrivals | None:
        def read(connection: sqlite3.Connection) -> Arrivals | None:
            exists = "SELECT 1 FROM sqlite_schema WHERE name = 'arrivals'"
            if connection.execute(exists).fetchone() is None:
                return Arrivals("0")
            first, last = connection.execute(_ARRIVAL_ENDS).fetchone()
            if after is None:
                return Arrivals(str(last))
            if not first - 1 <= int(after) <= last:
                return None
            rows = connection.execute(_ARRIVED, (int(after), ARRIVALS_PAGE)).fetchall()
            return Arrivals(str(rows[-1][0]) if rows else after, [Arrival(*row[1:]) for row in rows])

        return await self._short.run(read)

    async def forget(self, user: str) -> int:
        return (await self._take(user, None)).new

    async def move(self, user: str, to: str) -> Moved:
        return await self._take(user, to)

    async def health_warnings(self) -> list[str]:
        return []

    async def close(self) -> None:
        for database in (self._short, self._long, self._writer):
            await database.close()

    async def _take(self, user: str, to: str | None) -> Moved:
        """Delete a user's events in portions, and store them as events of `to`, if given.

        Expired events do not count; without `to` all others count as new.
        """

        def take_oldest(connection: sqlite3.Connection) -> tuple[int, int, int]:
            self._check_identity()
            oldest = oldest_kept(self._keep_days)
            rows = sorted(connection.execute(_TAKE_OLDEST, (user, _TAKEN_PORTION)).fetchall())
            kept = [(name, to, item, time, *rest) for time, _, name, item, *rest in rows if time >= oldest]
            if to is None:
                return len(rows), len(kept), 0
            connection.execute("INSERT INTO temp.moving VALUES (1)")
            new = connection.executemany(_INSERT, kept).rowcount
            connection.execute("DELETE FROM temp.moving")
            return len(rows), new, len(kept) - new

        moved = Moved(0, 0)
        while True:
            taken, new, known = await self._writer.write(take_oldest)
            moved = Moved(moved.new + new, moved.known + known)
            if taken < _TAKEN_PORTION:
                return moved

    def _unavailable(self, error: Exception) -> HistoryUnavailableError:
        return HistoryUnavailableError(f"{self._name} unavailable: {error}")

    def _write_group(self, connection: sqlite3.Connection) -> None:
        """Write waiting calls, until these have `_GROUP_EVENTS` events."""
        calls: list[_Append] = []
        count = 0
        while self._waiting and count < _GROUP_EVENTS:
            calls.append(self._waiting.popleft())
            count += len(calls[-1].events)
        self._write(connection, calls)

    def _write(self, connection: sqlite3.Connection, calls: Sequence[_Append]) -> None:
        """Write calls together; on failure each alone, as one call may be too large for the disk."""
        outcomes: Sequence[int | Exception]
        try:
            outcomes = self._insert(connection, calls)
        except (sqlite3.Error, OSError) as error:
            if len(calls) > 1 and error_code(error) != sqlite3.SQLITE_BUSY:
                for call in calls:
                    self._write(connection, [call])
                return
            outcomes = [self._unavailable(error)] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            call.outcome = outcome

    def _insert(self, connection: sqlite3.Connection, calls: Sequence[_Append]) -> list[int]:
        self._check_identity()
        oldest = oldest_kept(self._keep_days)
        with transaction(connection):
            if not self._lists_arrivals:
                connection.execute(_ARRIVALS)
            # Events are sorted by user, as a user's rows go into the same pages.
            stored = [
                connection.executemany(_INSERT, sorted(drop_expired(call.events, oldest), key=_USER)).rowcount
                for call in calls
            ]
            if self._keep_days is not None:  # each append sweeps some rows, cyclically
                end = _portion_end(connection, self._sweep_position, _SWEEP_PORTION)
                connection.execute(_SWEEP, (*self._sweep_position, *end, oldest))
                self._sweep_position = _BEGINNING if end == _END else end
            connection.execute(_DROP_ARRIVALS, (ARRIVALS_KEPT,))
        self._lists_arrivals = True
        return stored

    def _check_identity(self) -> None:
        """Refuse to write to a file that was moved or deleted: a restart would lose the events."""
        if self._path is not None and _identity(self._path) != self._identity:
            raise sqlite3.OperationalError("the file was moved or replaced; restart the service")


def _portion_end(connection: sqlite3.Connection, position: _Position, size: int) -> _Position:
    """The position of the last of the next `size` rows; _END if there are fewer."""
    end: _Position = connection.execute(_AFTER_END, (*position, size - 1)).fetchone()
    return end or _END


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _open(settings: Settings) -> Stores:
    path = Path(settings.store.partition("://")[2].removeprefix("/"))
    if not path.name:
        raise ServiceError(f"{settings.store!r} names no file; write sqlite:///PATH")
    # Items have a separate file, so that their changes don't wait for events, and either file can be copied,
    # restored or moved alone.
    items = path.with_name(f"{path.stem}.items{path.suffix}")
    return Stores(SqliteHistory(path, settings.keep_days), SqliteItems(items))


SQLITE = StoreKind(_open)
MEMORY = StoreKind(
    lambda settings: Stores(SqliteHistory(keep_days=settings.keep_days), SqliteItems()),
    is_lasting=False,
    is_shared=False,
)
