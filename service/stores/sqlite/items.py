"""Changed items in an SQLite file, synced to the disk before a change is acknowledged."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from turret.service.errors import ItemsUnavailableError
from turret.service.stores.contract import CHANGES_PAGE, Change, Changes, NewChange
from turret.service.stores.sqlite.file import Database, Tables, open_file, transaction

_TABLES = Tables(
    1,
    """
CREATE TABLE items (
    item TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE CHECK (typeof(number) = 'integer'),
    time INTEGER NOT NULL,
    features BLOB,
    fields BLOB
);
""",
)
# The new number exceeds all, also that of an earlier change of the same item.
_CHANGE = "INSERT OR REPLACE INTO items (item, number, time, features, fields) VALUES (?, ?, ?, ?, ?)"
_SINCE = "SELECT item, number, time, features, fields FROM items WHERE number > ? ORDER BY number LIMIT ?"
_OF_ITEM = "SELECT item, number, time, features, fields FROM items WHERE item = ?"
_LAST = "SELECT coalesce(max(number), 0) FROM items"
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

    async def change(self, changes: Sequence[NewChange]) -> list[int]:
        def write(connection: sqlite3.Connection) -> list[int]:
            numbers = []
            with transaction(connection):
                (last,) = connection.execute(_LAST).fetchone()
                for item, time, features, fields, after in changes:
                    is_stored = after is None or after == _number(_last_of(connection, item))
                    if is_stored:
                        last += 1
                        connection.execute(_CHANGE, (item, last, time, features, fields))
                    numbers.append(last if is_stored else 0)
            return numbers

        return await self._database.run(write)

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
    found = connection.execute(_OF_ITEM, (item,)).fetchone()
    return None if found is None else Change(*found)
