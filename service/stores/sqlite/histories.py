"""Histories in an SQLite file, synced to the disk before an event is acknowledged, or in memory."""

import asyncio
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import COUNT_LIMIT, Event, History, StoreKind, Stores
from turret.service.stores.sqlite.file import (
    GroupCommit,
    Tables,
    Worker,
    WriteResult,
    connect,
    open_file,
    remedy,
    transaction,
)
from turret.service.stores.sqlite.items import SqliteItems
from turret.service.stores.window import days, drop_expired, oldest_kept

_Position = tuple[str | bytes, int, int]  # the primary key of a row: user, time, arrival

# The primary key places a history on neighbouring pages; the unique key finds a user's event id. `item` has
# no type: integers come back as integers, texts as texts.
_TABLES = Tables(
    2,
    """
CREATE TABLE events (
    user TEXT NOT NULL,
    time INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    item NOT NULL,
    kind TEXT,
    PRIMARY KEY (user, time, arrival),
    UNIQUE (user, event_id)
) WITHOUT ROWID;
CREATE TABLE arrivals (last INTEGER NOT NULL);
INSERT INTO arrivals VALUES (0);
""",
    "SELECT user, time, arrival, event_id, item, kind, last FROM arrivals LEFT JOIN events LIMIT 1",
)

_ARRIVALS = "UPDATE arrivals SET last = last + ? RETURNING last"
_INSERT = (
    "INSERT INTO events (arrival, event_id, user, item, time, kind) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (user, event_id) DO NOTHING"
)
_OF_USER = "FROM events WHERE user = ? AND time >= ? ORDER BY time DESC, arrival DESC LIMIT ?"
_NEWEST = f"SELECT event_id, user, item, time, kind {_OF_USER}"
_USED = f"SELECT item, time {_OF_USER}"
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_OF_USER})"
_PORTION_END = "SELECT time, arrival FROM events WHERE user = ? ORDER BY time, arrival LIMIT 1 OFFSET ?"
_COUNT_PORTION = "SELECT count(*) FROM events WHERE user = ? AND (time, arrival) <= (?, ?) AND time >= ?"
_FORGET_PORTION = "DELETE FROM events WHERE user = ? AND (time, arrival) <= (?, ?)"
_AFTER = "FROM events WHERE (user, time, arrival) > (?, ?, ?)"
_AFTER_END = f"SELECT user, time, arrival {_AFTER} ORDER BY user, time, arrival LIMIT 1 OFFSET ?"
_UNTIL = f"{_AFTER} AND (user, time, arrival) <= (?, ?, ?)"
_SWEEP = f"DELETE {_UNTIL} AND time < ?"
_ORDER = "ORDER BY user, time, arrival"
_SCAN = f"SELECT event_id, user, item, time, kind {_UNTIL} AND time >= ? AND time < ? {_ORDER}"
_FIRST_USER = "SELECT min(user) FROM events WHERE user >= ?"
_LAST_USER = "SELECT max(user) FROM events WHERE user <= ?"
_USER_FROM = "SELECT user FROM events WHERE user >= ? AND time >= ? LIMIT 1"
_WRITE_LOCK_SECONDS, _READ_LOCK_SECONDS = 2.0, 0.25  # to wait for another process's lock
_SHORT = 1_000  # events of a user; longer reads have a thread of their own
_DELETE_PORTION = 10_000  # events of one transaction of `forget`
_SCAN_PORTION = 10_000  # rows that one read of `scan` visits
_SWEEP_PORTION = 1_000  # events that each append checks for expiry
_DRAWS, _PROBES = 8, 20  # of `random_user`: users, as some have expired, and probes for each
_LAST_CHARACTER = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)  # which no text in a database has
_ADDRESS_FORM = "sqlite:///PATH"
_FIRST, _LAST = -(2**63), 2**63 - 1
_BEGINNING, _END = ("", _FIRST, _FIRST), (b"", _LAST, _LAST)  # SQLite orders bytes after all texts
_USER = itemgetter(2)  # of an inserted row
_KINDS = frozenset({(str, str, item, int, kind) for item in (int, str) for kind in (str, type(None))})


class SqliteHistory:
    """A HistoryStore in WAL mode: one thread writes, two threads read, each with its own connection.

    Several processes may open the same file. Appends are synced to the disk (synchronous=FULL) in groups.
    Long reads have their own thread, so that short ones of other users don't wait for them. With a `max_age`
    each append also deletes some expired events. Without a path, the histories are in memory, in one
    connection without a thread. Raises ServiceError when the file can't be opened.
    """

    def __init__(self, path: Path | None = None, max_age: int | None = None) -> None:
        self._path = path
        self._store = f"history store {path.name if path else 'in memory'}"
        self._max_age = max_age
        self._sweep_position: _Position = _BEGINNING
        try:
            writer = open_file(path, _WRITE_LOCK_SECONDS, _TABLES)
            self._writer = Worker(writer, "history-writer" if path else None, self._unavailable)
            self._short = self._long = self._writer
            if path is not None:
                reading = [connect(path, _READ_LOCK_SECONDS) for _ in range(2)]
                self._short = Worker(reading[0], "history-reader", self._unavailable)
                self._long = Worker(reading[1], "history-long-reader", self._unavailable)
                self._identity = _identity(path)
        except (OSError, sqlite3.Error) as error:
            raise ServiceError(f"history store {path} can't be opened: {error}; {remedy(error)}") from None
        self._appends = GroupCommit(self._writer.run, self._insert_all)

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        return await self._appends.append(events)

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return users' newest events; see HistoryStore."""
        reader = self._short if limit <= _SHORT else self._long
        return await reader.run(
            lambda connection: {user: self._used(connection, user, limit) for user in users}
        )

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        return await self._long.run(lambda connection: self._counted_events(connection, user, limit))

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of a range of times, in the order of users; see HistoryStore.

        Each read visits a number of rows, so that none lasts long where few of them are in the range.
        """
        position: _Position = _BEGINNING
        while position != _END:
            read = partial(self._scan_some, position, first, last)
            events, position = await self._long.run(read)
            if events:
                yield events

    async def random_user(self) -> str | None:
        """Return a user with events: by a random character at each place where ids differ."""
        return await self._short.run(self._random_user)

    async def forget(self, user: str) -> int:
        """Delete a user's events, also from the file's free pages; see HistoryStore."""
        deleted, is_more = 0, True
        while is_more:
            count, is_more = await self._writer.run(lambda _: self._delete_some(user))
            deleted += count
        return deleted

    async def health_warnings(self) -> list[str]:
        """None: acknowledged events are on the disk."""
        return []

    async def close(self) -> None:
        """Finish running calls and close the file."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Like `close`, blocking."""
        for worker in (self._short, self._long, self._writer):
            worker.close()

    def _unavailable(self, error: Exception) -> HistoryUnavailableError:
        return HistoryUnavailableError(f"{self._store} unavailable: {error}")

    def _insert_all(self, calls: Sequence[Sequence[Event]]) -> list[WriteResult]:
        """Write calls together; on failure each alone, as one of them may be too large for the disk."""
        try:
            return list(self._insert(calls))
        except (sqlite3.Error, OSError) as error:
            if len(calls) == 1:
                return [self._unavailable(error)]
        return [self._insert_all([events])[0] for events in calls]

    def _insert(self, calls: Sequence[Sequence[Event]]) -> list[int]:
        self._check_identity()
        oldest = oldest_kept(self._max_age)
        calls = [drop_expired(events, oldest) for events in calls]
        stored = []
        with transaction(self._writer.connection) as connection:
            count = sum(map(len, calls))
            (last,) = connection.execute(_ARRIVALS, (count,)).fetchone()
            arrivals = iter(range(last - count + 1, last + 1))
            for events in calls:
                before = connection.total_changes
                # Sorted by user, as a user's rows go into the same pages.
                rows = [(next(arrivals), *event) for event in events]
                connection.executemany(_INSERT, sorted(rows, key=_USER))
                stored.append(connection.total_changes - before)
            if oldest is not None:
                self._sweep(connection, oldest)
        return stored

    def _sweep(self, connection: sqlite3.Connection, oldest: int) -> None:
        """Delete events before `oldest` among the next rows, cyclically."""
        end = _portion_end(connection, self._sweep_position, _SWEEP_PORTION)
        connection.execute(_SWEEP, (*self._sweep_position, *end, oldest))
        self._sweep_position = _BEGINNING if end == _END else end

    def _delete_some(self, user: str) -> tuple[int, bool]:
        """Delete a portion of a user's oldest events; return its size and whether there are more."""
        self._check_identity()
        with transaction(self._writer.connection) as connection:
            end = connection.execute(_PORTION_END, (user, _DELETE_PORTION - 1)).fetchone()
            bound = (user, *(end or (_LAST, _LAST)))
            (counted,) = connection.execute(_COUNT_PORTION, (*bound, self._oldest())).fetchone()
            connection.execute(_FORGET_PORTION, bound)
        return int(counted), end is not None

    def _used(self, connection: sqlite3.Connection, user: str, limit: int) -> History:
        rows = connection.execute(_USED, (user, self._oldest(), limit)).fetchall()
        rows.reverse()
        items, times = map(list, zip(*rows, strict=True)) if rows else ([], [])
        if not (set(map(type, items)) <= {int, str} and set(map(type, times)) <= {int}):
            raise self._damaged()
        return History(items, times)

    def _random_user(self, connection: sqlite3.Connection) -> str | None:
        for start in (*(self._draw(connection) for _ in range(_DRAWS)), ""):
            row = connection.execute(_USER_FROM, (start, self._oldest())).fetchone()
            if row is not None:
                return str(row[0])
        return None

    def _draw(self, connection: sqlite3.Connection) -> str:
        """Draw a user; each probe fixes the next character in which ids differ. '' if there is no user."""
        first = self._user(connection, _FIRST_USER, "")
        last = self._user(connection, _LAST_USER, _LAST_CHARACTER)
        for _ in range(_PROBES):
            if first >= last:
                break
            pairs = enumerate(zip(first, last, strict=False))
            place = next((place for place, (one, other) in pairs if one != other), len(first))
            low = ord(first[place]) if place < len(first) else -1
            # Small steps are as likely as large ones: an id in another script doesn't hide all others.
            code = low - 1 + int((ord(last[place]) - low + 2) ** random.random())
            if code < 0:
                break
            character = "\ue000" if code in _SURROGATES else chr(code)
            first = self._user(connection, _FIRST_USER, first[:place] + character)
            last = self._user(connection, _LAST_USER, first[: place + 1] + _LAST_CHARACTER)
        return first

    def _user(self, connection: sqlite3.Connection, query: str, bound: str) -> str:
        (user,) = connection.execute(query, (bound,)).fetchone()
        if not isinstance(user, str | None):
            raise self._damaged()
        return user or ""

    def _counted_events(
        self, connection: sqlite3.Connection, user: str, limit: int
    ) -> tuple[int, list[Event]]:
        (count,) = connection.execute(_COUNT, (user, self._oldest(), COUNT_LIMIT)).fetchone()
        rows = connection.execute(_NEWEST, (user, self._oldest(), limit)).fetchall()
        rows.reverse()
        return int(count), self._as_events(rows)

    def _as_events(self, rows: Sequence[tuple[Any, ...]]) -> list[Event]:
        if not {tuple(map(type, row)) for row in rows} <= _KINDS:
            raise self._damaged()
        return list(map(Event._make, rows))

    def _scan_some(
        self, position: _Position, first: int, last: int, connection: sqlite3.Connection
    ) -> tuple[list[Event], _Position]:
        """Return the events of the next rows, and the position of the last row or _END."""
        end = _portion_end(connection, position, _SCAN_PORTION)
        rows = connection.execute(_SCAN, (*position, *end, max(first, self._oldest()), last)).fetchall()
        return self._as_events(rows), end

    def _damaged(self) -> HistoryDamagedError:
        return HistoryDamagedError(f"{self._store} has a row that is no event; move the file away")

    def _oldest(self) -> int:
        oldest = oldest_kept(self._max_age)
        return _FIRST if oldest is None else oldest

    def _check_identity(self) -> None:
        """Refuse to write to a file that was moved or deleted: a restart would lose the events."""
        if self._path is not None and _identity(self._path) != self._identity:
            raise sqlite3.OperationalError("the file was moved or replaced; restart the service")


def _portion_end(connection: sqlite3.Connection, position: _Position, size: int) -> _Position:
    """The last one of the next `size` rows, _END if there are fewer."""
    end: _Position = connection.execute(_AFTER_END, (*position, size - 1)).fetchone()
    return end or _END


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _open(settings: Settings) -> Stores:
    path = _path(settings.store)
    return Stores(SqliteHistory(path, days(settings.keep_days)), SqliteItems(_items_path(path)))


def _prepare(address: str) -> None:
    """Create the files before the workers start, which would wait for each other."""
    path = _path(address)
    SqliteHistory(path).close_now()
    SqliteItems(_items_path(path)).close_now()


def _path(address: str) -> Path:
    path = Path(address.partition("://")[2].removeprefix("/"))
    if not path.name:
        raise ServiceError(f"{address!r} names no file; write {_ADDRESS_FORM}")
    return path


def _items_path(histories: Path) -> Path:
    """The items' file of a file of histories: `history.sqlite` -> `history.items.sqlite`.

    With a file of their own, changes of items don't wait for events, and either file can be copied, restored
    or moved alone.
    """
    return histories.with_name(f"{histories.stem}.items{histories.suffix}")


def _open_in_memory(settings: Settings) -> Stores:
    return Stores(SqliteHistory(max_age=days(settings.keep_days)), SqliteItems())


SQLITE = StoreKind(_ADDRESS_FORM, _open, _prepare)
MEMORY = StoreKind("memory://", _open_in_memory, is_lasting=False, is_shared=False)
