"""Changed items in an SQLite file, synced to the disk before a change is acknowledged."""

import sqlite3
from pathlib import Path

from turret.service.errors import ItemsUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes
from turret.service.stores.sqlite.file import Database, Tables, open_file, transaction

_TABLES = Tables(
    1,
    """
CREATE TABLE items (
    item TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    time INTEGER NOT NULL,
    features BLOB,
    fields BLOB
);
""",
)
# The new number exceeds all, also that of an earlier change of the same item.
_CHANGE = "INSERT OR REPLACE INTO items (item, number, time, features, fields) VALUES (?, ?, ?, ?, ?)"
_SINCE = "SELECT item, number, time, features, fields FROM items WHERE number > ? ORDER BY number LIMIT ?"
_LAST = "SELECT coalesce(max(number), 0) FROM items"
_MOST_NUMBERS = 2**53
_LOCK_SECONDS = 2.0  # to wait for another process's lock


class SqliteItems:
    """An ItemStore in WAL mode with synchronous=FULL, or without a path in memory.

    Raises ServiceError when the file can't be opened.
    """

    def __init__(self, path: Path | None = None) -> None:
        name = path.name if path else "in memory"
        self._database = Database(
            open_file(path, _LOCK_SECONDS, _TABLES),
            "items" if path else None,
            lambda error: ItemsUnavailableError(f"item store {name} unavailable: {error}"),
        )

    async def put(self, item: str, features: bytes, fields: bytes, time: int) -> int:
        return await self._change(item, time, features, fields)

    async def withdraw(self, item: str, time: int) -> int:
        return await self._change(item, time, None, None)

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        return await self._database.run(lambda connection: _changes_since(connection, since, limit))

    async def close(self) -> None:
        await self._database.close()

    async def _change(self, item: str, time: int, features: bytes | None, fields: bytes | None) -> int:
        def write(connection: sqlite3.Connection) -> int:
            with transaction(connection):
                number = _last(connection) + 1
                connection.execute(_CHANGE, (item, number, time, features, fields))
            return number

        return await self._database.run(write)


def _changes_since(connection: sqlite3.Connection, since: int, limit: int) -> Changes:
    last = _last(connection)
    # One statement reads one snapshot: no change lies between the items and the last number.
    items = [Change(*row) for row in connection.execute(_SINCE, (since, limit))]
    return Changes(items[-1].number if items else min(last, since), items)


def _last(connection: sqlite3.Connection) -> int:
    """The number of the last change, 0 before the first."""
    (last,) = connection.execute(_LAST).fetchone()
    if not (type(last) is int and 0 <= last < _MOST_NUMBERS):
        raise sqlite3.DatabaseError(
            f"its last change has the number {last!r}, which only damage explains; delete the rows of its "
            f"table `items` whose number is negative, {_MOST_NUMBERS} or more, or no integer"
        )
    return last
