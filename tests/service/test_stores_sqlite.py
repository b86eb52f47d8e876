"""Histories and items in SQLite: what is synced, grouped and refused, and who may read the file."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import eventually
from turret.service.errors import HistoryUnavailableError, ReplicasUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Event, History, NewChange
from turret.service.stores.sqlite import histories
from turret.service.stores.sqlite.file import connect, make_private
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.shared import SqliteItems, SqliteRecords, shared_folder, store_folder

EVENT = Event("e", "u", 1, 0)


def other(path: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(path, isolation_level=None))


# The file


@pytest.mark.parametrize("umask", [0o022, 0o000])
async def test_what_a_store_writes_is_for_its_user_only(tmp_path: Path, umask: int) -> None:
    def modes(folder: Path) -> dict[str, int]:
        return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}

    folder = tmp_path / "new" / "deep"
    before = os.umask(umask)
    try:
        events, items = SqliteHistory(folder / "h.sqlite"), SqliteItems(folder / "h.items.sqlite")
        await events.append([EVENT])
        await items.change([NewChange("i", 0, b"{}", b"{}")])
    finally:
        os.umask(before)
    names = {name + end for name in ("h.sqlite", "h.items.sqlite") for end in ("", "-wal", "-shm")}
    assert modes(folder) == dict.fromkeys(names, 0o600)
    await events.close()
    await items.close()
    assert {**modes(tmp_path), **modes(folder.parent)} == {"new": 0o700, "deep": 0o700}
    (folder / "h.sqlite").chmod(0o644)
    make_private(folder / "h.sqlite")
    assert modes(folder)["h.sqlite"] == 0o600


async def test_calls_that_gave_up_change_nothing_after_a_user_was_deleted_meanwhile(tmp_path: Path) -> None:
    """Neither the append and the login that wait for another process's lock, nor those that wait for them."""
    path = tmp_path / "h.sqlite"
    store, items = SqliteHistory(path), SqliteItems(tmp_path / "h.items.sqlite")
    await store.append([Event("s", "session", 1, 0)])
    with other(path) as deleting, other(tmp_path / "h.items.sqlite") as withdrawing:
        deleting.execute("BEGIN IMMEDIATE")
        withdrawing.execute("BEGIN IMMEDIATE")
        late: list[asyncio.Task[Any]] = [asyncio.create_task(store.append([EVENT]))]
        await eventually(lambda: bool(store._writing and not store._waiting), "the append has begun")
        late += [asyncio.create_task(store.append([EVENT._replace(event_id=f"{n}")])) for n in range(100)]
        late += [asyncio.create_task(store.move("session", "u"))]
        late += [asyncio.create_task(items.change([NewChange("i", 0, b"{}", b"{}")]))]
        await asyncio.sleep(0)
        for call in late:
            call.cancel()
        assert all(
            isinstance(end, BaseException) for end in await asyncio.gather(*late, return_exceptions=True)
        )
        deleting.execute("DELETE FROM events WHERE user = 'u'")
        deleting.execute("COMMIT")
        withdrawing.execute("COMMIT")
    assert await store.append([Event("e", "another", 1, 0)]) == 1
    assert await store.events("u", 10) == (0, [])
    assert (await store.events("session", 10))[0] == 1
    assert await items.last(["i"]) == [None]
    await store.close()
    await items.close()


def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "h", 0)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "histories.sqlite"


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteHistory]:
    """A store that waits for no lock."""
    monkeypatch.setattr(histories, "_WRITE_LOCK_SECONDS", 0.0)
    store = SqliteHistory(path)
    yield store
    asyncio.run(store.close())


def test_the_file_is_that_of_a_write_ahead_log_and_opening_it_again_writes_nothing(path: Path) -> None:
    """So that it can be opened on a full disk."""
    asyncio.run(SqliteHistory(path).close())
    before = path.read_bytes()
    asyncio.run(SqliteHistory(path).close())
    assert path.read_bytes() == before
    with other(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("opening", "name", "words"),
    [
        (SqliteHistory, "damaged", "move it away"),
        (SqliteHistory, "", "can't be opened"),
        (SqliteRecords, "damaged", "can't be opened: .*; it is damaged: move it away"),
        (SqliteRecords, "damaged/below", "can't be opened: .*; its folder has to be"),
    ],
)
def test_a_file_that_is_no_database_is_refused_in_words(
    tmp_path: Path, opening: Callable[[Path], object], name: str, words: str
) -> None:
    (tmp_path / "damaged").write_bytes(b"not a database" * 400)
    with pytest.raises(ServiceError, match=words):
        opening(tmp_path / name)


@pytest.mark.fault(59)
@pytest.mark.parametrize("number", [1, 9])
def test_a_file_of_another_format_is_refused_and_left_alone(path: Path, number: int) -> None:
    path.parent.mkdir()
    with other(path) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    before = path.read_bytes()
    with pytest.raises(ServiceError, match=f"format {number}, and this release reads 2; name another file"):
        SqliteHistory(path)
    assert path.read_bytes() == before


# The tables of a file before events could name answers.
_EARLIER = """
CREATE TABLE events (user TEXT NOT NULL, time INTEGER NOT NULL, arrival INTEGER NOT NULL,
    event_id TEXT NOT NULL, item NOT NULL, kind TEXT,
    PRIMARY KEY (user, time, arrival), UNIQUE (user, event_id)) WITHOUT ROWID;
INSERT INTO events VALUES ('u', 0, 1, 'e', 1, NULL);
PRAGMA user_version = 2;
"""
_EARLIER_INSERT = (
    "INSERT INTO events (event_id, user, item, time, kind, arrival) VALUES ('f', 'u', 2, 2, 'buy', 1)"
)


async def test_a_file_of_an_earlier_release_opens_and_that_release_goes_on_writing_it(path: Path) -> None:
    path.parent.mkdir()
    with other(path) as earlier:
        earlier.executescript(_EARLIER)
        store = SqliteHistory(path)
        named = Event("g", "u", 3, 3, None, "0" * 32)
        assert await store.append([named]) == 1
        earlier.execute(_EARLIER_INSERT)
        assert await store.events("u", 9) == (3, [EVENT, Event("f", "u", 2, 2, "buy"), named])
        await store.close()


# Histories


def test_a_locked_file_is_an_error_now_and_none_later(store: SqliteHistory, path: Path) -> None:
    with other(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryUnavailableError, match="locked"):
            asyncio.run(store.append([EVENT]))
        assert asyncio.run(store.recent(["u"], 1)) == {"u": History([], [])}
        connection.execute("ROLLBACK")
    assert asyncio.run(store.append([EVENT])) == 1


def test_the_bytes_of_a_forgotten_user_leave_the_file(path: Path, store: SqliteHistory) -> None:
    asyncio.run(store.append([Event("e", "the-secret-name", 1, 0)]))
    asyncio.run(store.forget("the-secret-name"))
    with other(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"the-secret-name" not in path.read_bytes()


def test_a_file_that_was_replaced_is_not_written(store: SqliteHistory, path: Path) -> None:
    """Events in the old file would be lost with the process."""
    assert asyncio.run(store.append([EVENT])) == 1
    path.rename(path.with_name("moved"))
    with pytest.raises(HistoryUnavailableError, match="No such file"):
        asyncio.run(store.append([EVENT]))
    path.write_bytes(b"")
    for call in (store.append([EVENT]), store.forget("u")):
        with pytest.raises(HistoryUnavailableError, match="restart the service"):
            asyncio.run(call)
    assert asyncio.run(store.recent(["u"], 1)) == {"u": History([1], [0])}


async def test_what_is_too_old_leaves_the_file_in_time(path: Path) -> None:
    """Also events of users who never return: each append checks some rows."""
    store = SqliteHistory(path)
    await store.append([Event(f"{n}", f"u{n}", 1, n) for n in range(2_500)])
    await store.close()
    store = SqliteHistory(path, keep_days=1)
    for number in range(4):
        await store.append([Event(f"now {number}", "u", 1, 2**45)])
    await store.close()
    with other(path) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (4,)


# Groups of appends


ERRORS = {"large": sqlite3.SQLITE_FULL, "locked": sqlite3.SQLITE_BUSY}


class Recorder(SqliteHistory):
    """Remembers the sizes of groups; the events of ERRORS are refused."""

    sizes: tuple[int, ...] = ()

    def _insert(self, connection: sqlite3.Connection, calls: Sequence[histories._Append]) -> list[int]:
        self.sizes += (len(calls),)
        for event_id, code in ERRORS.items():
            if any(event.event_id == event_id for call in calls for event in call.events):
                error = sqlite3.OperationalError(event_id)
                error.sqlite_errorcode = code
                raise error
        return [len(call.events) for call in calls]


@pytest.mark.parametrize(
    ("calls", "groups"),
    [
        ([[EVENT]], [1]),
        ([[EVENT] * (n + 1) for n in range(5)], [5]),
        ([[EVENT], [EVENT._replace(event_id="large")], [EVENT]], [3, 1, 1, 1]),
        ([[EVENT._replace(event_id="locked")]] * 3, [3]),
        ([[EVENT] * 2_000] * 5, [3, 2]),
    ],
    ids=["alone", "at once", "one fails alone", "no group waits twice for a lock", "a group has a size"],
)
async def test_calls_that_come_at_once_are_a_group(
    path: Path, calls: list[list[Event]], groups: list[int]
) -> None:
    store = Recorder(path)
    results = await asyncio.gather(*map(store.append, calls), return_exceptions=True)
    await store.close()
    for events, result in zip(calls, results, strict=True):
        if events[0].event_id in ERRORS:
            assert isinstance(result, HistoryUnavailableError)
        else:
            assert result == len(events)
    assert list(store.sizes) == groups


# The record of members on one machine


async def test_a_member_that_holds_the_lock_is_waited_for_briefly_and_stops_no_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.stores.sqlite.shared._RECORD_LOCK_SECONDS", 0.01)
    records = SqliteRecords(tmp_path / "record")
    await records.swap(b"", b"one")
    before = await records.poll()
    with other(tmp_path / "record") as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        for call in (records.swap(b"one", b"two"), records.members("a", b"", 9), records.leave("a")):
            with pytest.raises(ReplicasUnavailableError, match="is unavailable: database is locked; if"):
                await call
        assert (await records.poll(), await records.read()) == (before, b"one")
    assert await records.swap(b"one", b"two") == b"two"
    await records.close()


@pytest.mark.parametrize(
    ("lost", "starts_at_once"),
    [
        (["record"], True),
        (["record-wal"], False),  # else it fails to start, until one of the others has noticed it
        (["record-shm"], True),
        (["record", "record-wal", "record-shm"], True),
        ([], True),
    ],
)
async def test_members_share_one_record_again_after_a_part_of_it_was_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: list[str], starts_at_once: bool
) -> None:
    """Those that have the deleted file open, and one that starts after that; the record may be empty then."""
    folder = tmp_path / "shared"
    one, two = SqliteRecords(folder / "record"), SqliteRecords(folder / "record")
    await one.swap(b"", b"old")
    before = await two.poll()
    for name in lost or os.listdir(folder):
        (folder / name).unlink()
    if not lost:
        folder.rmdir()
    if not starts_at_once:
        await one.poll()
    three = SqliteRecords(folder / "record")
    for each in (one, three, two, one, three):
        await each.poll()
    found = await one.read()
    assert found in (b"", b"old")
    assert await three.swap(found, b"new") == b"new"
    assert [await each.read() for each in (one, two, three)] == [b"new"] * 3
    revisions = {await each.poll() for each in (one, two, three)}
    assert len(revisions) == 1
    assert before not in revisions
    assert "record was deleted or replaced; opening it again" in caplog.text
    for each in (one, two, three):
        await each.close()


def test_the_folder_of_members_is_private_and_those_of_killed_services_are_removed(tmp_path: Path) -> None:
    """One that is in use stays, and so does one that may just have been made."""
    place = store_folder(Settings(store=f"sqlite:///{tmp_path}/var/history.sqlite"))
    assert place == tmp_path / "var"
    with shared_folder(place) as used:
        (used / "record.sqlite").touch()
        killed, new, foreign = (used.with_name(name) for name in (".turret-killed", ".turret-new", "other"))
        for folder in (killed, new, foreign):
            folder.mkdir()
        for folder in (used, killed, foreign):
            os.utime(folder, (0, 0))
        with shared_folder(place) as other_service:
            assert sorted(place.iterdir()) == sorted([used, new, foreign, other_service])
        assert {path.stat().st_mode & 0o777 for path in (place, used)} == {0o700}
    assert sorted(place.iterdir()) == [new, foreign]


def test_a_folder_of_members_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"file can't be made \(Not a directory\); name another --store"):
        shared_folder(tmp_path / "file").__enter__()
    assert store_folder(Settings(store="memory://")) is None
