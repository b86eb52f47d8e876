import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.errors import HistoryUnavailableError, ServiceError
from service.history import sqlite
from service.history.contract import Event
from service.history.sqlite import SqliteHistory

EVENT = Event("e", "u", 1, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "histories.sqlite"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_WAIT_TO_WRITE", 0.05)


@pytest.fixture
def store(path: Path, impatient: None) -> Iterator[SqliteHistory]:
    store = SqliteHistory(path)
    yield store
    asyncio.run(store.close())


def test_it_waits_for_the_disk(store: SqliteHistory) -> None:
    """FULL is 2: only then is the write-ahead log synced at every commit."""
    assert store._writing.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_events_outlive_the_store(path: Path) -> None:
    async def write() -> None:
        store = SqliteHistory(path)
        await store.append([EVENT])
        await store.close()

    async def read() -> tuple[int, list[Event]]:
        store = SqliteHistory(path)
        found = await store.events("u", 10)
        await store.close()
        return found

    asyncio.run(write())
    assert asyncio.run(read()) == (1, [EVENT])


def test_a_locked_file_is_an_error_now_and_none_later(store: SqliteHistory, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryUnavailableError, match="locked"):
            asyncio.run(store.append([EVENT]))
        assert asyncio.run(store.recent(["u"], 1)) == {"u": []}
        other.execute("ROLLBACK")
    assert asyncio.run(store.append([EVENT])) == 1


def test_a_full_disk_stores_nothing_of_a_call(store: SqliteHistory) -> None:
    (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
    store._writing.execute(f"PRAGMA max_page_count = {pages + 2}")
    events = [Event(f"e{number}", "u", "x" * 500, number) for number in range(200)]
    with pytest.raises(HistoryUnavailableError, match="full"):
        asyncio.run(store.append(events))
    assert asyncio.run(store.events("u", 10)) == (0, [])
    assert asyncio.run(store.append([EVENT])) == 1


def test_a_vanished_table_is_an_error_of_the_store(store: SqliteHistory, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DROP TABLE events")
    for call in (store.append([EVENT]), store.recent(["u"], 1), store.events("u", 1), store.forget("u")):
        with pytest.raises(HistoryUnavailableError):
            asyncio.run(call)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not a database" * 100)
    with pytest.raises(ServiceError, match="move the file away"):
        SqliteHistory(tmp_path / "file")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="can't be kept"):
        SqliteHistory(tmp_path)


def test_a_file_of_a_later_format_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA user_version = 9")
    with pytest.raises(ServiceError, match="format 9"):
        SqliteHistory(path)


def test_the_bytes_of_a_forgotten_user_leave_the_file(path: Path, store: SqliteHistory) -> None:
    asyncio.run(store.append([Event("e", "the-secret-name", 1, 0)]))
    asyncio.run(store.forget("the-secret-name"))
    store._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"the-secret-name" not in path.read_bytes()
