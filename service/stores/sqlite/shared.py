"""The state that members share in SQLite files: a record, which lives as long as the service, and items."""

import asyncio
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from turret.data.files import locked, scratch_folder
from turret.service.errors import ItemsUnavailableError, ReplicasUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import (
    CHANGES_PAGE,
    Change,
    Changes,
    Member,
    NewChange,
    RecordStore,
    Revision,
)
from turret.service.stores.registry import store_kind
from turret.service.stores.sqlite.file import Database, make_parents, make_private, open_file, transaction

# `state` has one row. The record is its last column: `poll` need not read its pages.
_RECORD_TABLES = """
CREATE TABLE state (
    revision INTEGER NOT NULL,
    items INTEGER NOT NULL,
    holder TEXT NOT NULL,
    lease_end REAL NOT NULL,
    record BLOB NOT NULL
);
INSERT INTO state VALUES (0, 0, '', 0, x'');
CREATE TABLE members (name TEXT PRIMARY KEY, time REAL NOT NULL, report BLOB NOT NULL) WITHOUT ROWID
"""
_POLL = "SELECT revision, items FROM state"
_READ = "SELECT record FROM state"
# The revision is a time, so that a record that was lost and is written again has another revision.
_SWAP = "UPDATE state SET revision = max(revision + 1, ?), record = ?"
_ANNOUNCE = "UPDATE state SET items = ? WHERE items < ?"
_TAKE = "UPDATE state SET holder = ?, lease_end = ? WHERE holder = ? OR lease_end <= ?"
_REPORT = "INSERT OR REPLACE INTO members (name, time, report) VALUES (?, ?, ?)"
_LEAST_BYTES = 8_000_000  # for the record, and the metrics of some workers
_RECORD_LOCK_SECONDS = 0.3  # to wait for another member's lock, which lasts microseconds
_REMEDY = "its folder has to be writable, on a local disk with some free space"
_log = logging.getLogger("turret.replicas")


@contextmanager
def shared_folder(place: Path | None = None) -> Iterator[Path]:
    """Make the folder that the members of a service share on one machine, and remove it after the block.

    The folder is in `place`, or among temporary files if `place` is None or has no room: the service goes on
    answering when the disk of `place` is full. Raises ServiceError.
    """
    with ExitStack() as stack:
        try:
            if place is not None:
                make_parents(place / "folder")
                if shutil.disk_usage(place).free < _LEAST_BYTES:
                    _log.warning("the disk of %s is full; the workers' folder is a temporary one", place)
                    place = None
            folder = stack.enter_context(scratch_folder(place))
        except OSError as error:
            where = f"in {place}" if place else "for temporary files"
            remedy = "another --store" if place else "a writable one by TMPDIR"
            raise ServiceError(
                f"the workers' folder {where} can't be made ({error.strerror}); name {remedy}"
            ) from None
        yield folder


def store_folder(settings: Settings) -> Path | None:
    """The folder of a store in a file, which no cleaner of temporary files empties; None for other stores."""
    scheme, _, path = settings.store.partition(":///")
    return Path(path).absolute().parent if scheme == "sqlite" else None


def open_records(settings: Settings, folder: Path) -> RecordStore:
    """Open the record that all members share: in their store, or else in a file of `folder`, for one machine.

    Raises ServiceError for a faulty address, and for a file that can't be opened.
    """
    opener = store_kind(settings.store).open_records
    return opener(settings) if opener else SqliteRecords(folder / "record.sqlite")


class SqliteRecords:
    """A RecordStore in an SQLite file in WAL mode, private to its user.

    Each member opens it after the fork. Members may be killed at any moment, but not the machine: the
    file begins empty with the service, so nothing is synced to the disk. Ages and leases are measured by the
    monotonic clock, which the processes of a machine share. `poll` and `read` run in the event loop, as no
    writer blocks them; everything else runs in a thread. Raises ServiceError when the file can't be opened.

    If the file is deleted, the members that have it open no longer share it with members that start: `poll`
    notices that, and opens the file again, which is then empty like a Redis that was flushed.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._files: tuple[int | None, ...] = ()
        self._open()

    def _open(self) -> None:
        """Open the file of the other members, or a new file where a part is missing; members take turns."""
        lock = self._path.with_suffix(".lock")
        try:
            make_private(lock)
            with locked(lock):
                main, *parts = _parts(self._path)
                if self._files and self._files[0] == _inode(main):
                    main.unlink()
                if not main.exists():
                    for part in parts:
                        part.unlink(missing_ok=True)
                self._reader = Database(_open(main), None, self._failed)
                self._writer = Database(_open(main), "records", self._failed)
                self._files = tuple(map(_inode, _parts(self._path)))
        except OSError as error:
            raise ServiceError(f"{lock} can't be opened: {error}; {_REMEDY}") from None

    def _failed(self, error: Exception) -> ReplicasUnavailableError:
        return ReplicasUnavailableError(
            f"the workers' record {self._path} is unavailable: {error}; if that lasts, restart the service"
        )

    async def poll(self) -> Revision:
        if self._files != tuple(map(_inode, _parts(self._path))):
            _log.warning("the workers' record %s was deleted or replaced; opening it again", self._path)
            before = self._reader, self._writer
            try:
                await asyncio.to_thread(self._open)
            except ServiceError as error:
                raise self._failed(error) from None
            for database in before:
                await database.close()
        return await self._reader.run(lambda file: Revision(*file.execute(_POLL).fetchone()))

    async def read(self) -> bytes:
        return await self._reader.run(_record)

    async def swap(self, before: bytes, after: bytes) -> bytes:

        def write(file: sqlite3.Connection) -> bytes:
            record = _record(file)
            if record == before:
                file.execute(_SWAP, (time.time_ns() // 1000, after))
                record = after
            return record

        return await self._writer.write(write)

    async def members(
        self, name: str = "", report: bytes = b"", forget_after: float = 0
    ) -> tuple[Member, ...]:

        def work(file: sqlite3.Connection) -> tuple[Member, ...]:
            if name:
                with transaction(file):
                    now = self._clock()
                    file.execute(_REPORT, (name, now, report))
                    file.execute("DELETE FROM members WHERE time < ?", (now - forget_after,))
            rows = file.execute("SELECT name, time, report FROM members").fetchall()
            now = self._clock()
            return tuple(Member(member, now - reported, said) for member, reported, said in rows)

        return await self._writer.run(work)

    async def leave(self, name: str) -> None:
        await self._write("DELETE FROM members WHERE name = ?", name)

    async def announce(self, items: int) -> None:
        await self._write(_ANNOUNCE, items, items)

    async def take_lease(self, holder: str, seconds: float) -> bool:
        now = self._clock()
        return await self._write(_TAKE, holder, now + seconds, holder, now)

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()

    async def _write(self, statement: str, *values: str | float) -> bool:
        """Execute one statement; return whether it has changed a row."""
        return await self._writer.write(lambda file: file.execute(statement, values).rowcount > 0)


def _parts(path: Path) -> list[Path]:
    """The file, its log and its index."""
    return [path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _open(path: Path) -> sqlite3.Connection:
    connection = open_file(path, _RECORD_LOCK_SECONDS, _RECORD_TABLES, remedy=_REMEDY)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _record(file: sqlite3.Connection) -> bytes:
    (record,) = file.execute(_READ).fetchone()
    return bytes(record)


_ITEM_TABLES = """
CREATE TABLE items (
    item TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE CHECK (typeof(number) = 'integer'),
    time INTEGER NOT NULL,
    features BLOB,
    fields BLOB
);
"""
# The new number exceeds all others, also that of an earlier change of the same item.
_CHANGE = "INSERT OR REPLACE INTO items (item, number, time, features, fields) VALUES (?, ?, ?, ?, ?)"
_SINCE = "SELECT item, number, time, features, fields FROM items WHERE number > ? ORDER BY number LIMIT ?"
_OF_ITEM = "SELECT item, number, time, features, fields FROM items WHERE item = ?"
_LAST = "SELECT coalesce(max(number), 0) FROM items"
_ITEM_LOCK_SECONDS = 2.0  # to wait for another process's lock


class SqliteItems:
    """An ItemStore in an SQLite file in WAL mode with synchronous=FULL; without a path, in memory.

    Raises ServiceError when the file can't be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        name = path.name if path else "in memory"
        self._database = Database(
            open_file(path, _ITEM_LOCK_SECONDS, _ITEM_TABLES),
            "items" if path else None,
            lambda error: ItemsUnavailableError(f"item store {name} unavailable: {error}"),
        )

    async def change(self, changes: Sequence[NewChange]) -> list[int]:
        def write(connection: sqlite3.Connection) -> list[int]:
            numbers = []
            (last,) = connection.execute(_LAST).fetchone()
            for item, moment, features, fields, after in changes:
                is_stored = after is None or after == _number(_last_of(connection, item))
                if is_stored:
                    last += 1
                    connection.execute(_CHANGE, (item, last, moment, features, fields))
                numbers.append(last if is_stored else 0)
            return numbers

        return await self._database.write(write)

    async def last(self, items: Sequence[str]) -> list[Change | None]:
        return await self._database.run(lambda connection: [_last_of(connection, item) for item in items])

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        def read(connection: sqlite3.Connection) -> Changes:
            (last,) = connection.execute(_LAST).fetchone()
            # One statement reads one snapshot: no change lies between the items and the last number.
            items = [Change(*row) for row in connection.execute(_SINCE, (since, limit))]
            return Changes(items[-1].number if items else min(last, since), items)

        return await self._database.run(read)

    async def close(self) -> None:
        await self._database.close()


def _number(change: Change | None) -> int:
    return change.number if change else 0


def _last_of(connection: sqlite3.Connection, item: str) -> Change | None:
    row = connection.execute(_OF_ITEM, (item,)).fetchone()
    return None if row is None else Change(*row)
