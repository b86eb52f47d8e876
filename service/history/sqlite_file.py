"""The file of an SqliteHistory: its tables, how it is opened, and transactions on it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.errors import ServiceError

_FORMAT = 1
# `item` has no type, so that an integer comes back as an integer and a text as a text.
_TABLES = """
BEGIN IMMEDIATE;
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
_OPENING = 5.0  # seconds in which processes that start together take turns


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """Connect to a file, to wait up to `wait` seconds for a lock of another connection."""
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def open_file(path: Path, wait: float) -> sqlite3.Connection:
    """Connect to a file and make its tables, if it is new. Raises ServiceError for another format.

    Also sqlite3.Error, when it can't be done. A file that is complete isn't written: on a full disk it opens.
    """
    last = time.monotonic() + _OPENING
    while True:
        connection = connect(path, wait)
        try:
            _prepare(connection, path)
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            # Going over to WAL fails at once where another process is at it, whatever the time to wait.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
            time.sleep(0.02)
        except BaseException:
            connection.close()
            raise


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found not in (0, _FORMAT):
        raise ServiceError(f"{path} has format {found}, and this turret reads {_FORMAT}; name another file")
    connection.execute("PRAGMA journal_mode = WAL")
    if not found:
        connection.executescript(_TABLES + f"PRAGMA user_version = {_FORMAT}; COMMIT;")
    connection.execute("SELECT event_id, user, item, time, kind FROM events LIMIT 1").fetchone()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Do everything or nothing of what is done within, with the right to write from the start."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
