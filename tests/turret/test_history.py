"""`turret history`: the events of a log go into a store, and stored ones back into a log."""

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.contracts.stores import ADDRESSES
from tests.support.command_line import output
from tests.support.redis_server import sweep
from tests.turret.conftest import START, Prepare, stored
from turret.data.errors import ConfigurationError
from turret.data.kinds import Kind
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append as append_events
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import FilesSplit, PrepareConfig
from turret.history import dumping, loading
from turret.history.dumping import TimeRange, dump_histories
from turret.history.loading import load_histories, logged_events, prepared_log
from turret.service.errors import HistoryUnavailableError, ServiceError
from turret.service.settings import Settings
from turret.service.stores.contract import Event, Stores
from turret.service.stores.registry import open_stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.training.evaluation.per_user import PerUser, load_per_user

HEAD = "user_id,item_id,timestamp\n"
MOMENT = 1000 * START
LOG = HEAD + "".join(f"u{user},i{item % 3},{START + item}\n" for user in range(5) for item in range(4))
# Of `logged_events`, and of a dump: everything.
NOW = MOMENT + 100_000
KEPT = {"newest": 100, "oldest": 0, "now": NOW}
ALL = TimeRange(0, 2**50)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.nightly)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store."""
    place = ADDRESSES[request.param](tmp_path)
    yield place
    sweep(place)


def append(address: str, *events: Event) -> None:
    async def write() -> None:
        stores = open_stores(Settings(store=address))
        assert await stores.histories.append(events) == len(events)
        await stores.close()

    asyncio.run(write())


def test_the_events_of_the_log_are_stored_and_a_second_time_nothing(address: str, prepared: Prepare) -> None:
    data = prepared(LOG)
    report = load_histories(data, Settings(store=address))
    assert (report.read, report.kept, report.stored, report.users) == (20, 20, 20, 5)
    assert [(event.item, event.time) for event in stored(address, "u3")] == [
        (item, 1000 * (START + place)) for place, item in enumerate(["i0", "i1", "i2", "i0"])
    ]
    assert load_histories(data, Settings(store=address)).stored == 0


def test_an_event_that_came_into_the_log_from_the_store_is_not_stored_again(
    address: str, prepared: Prepare
) -> None:
    """It has an id of its client there. A second use of the item at the same time is new, though."""
    append(address, Event("own", "a", 7, MOMENT), Event("later", "a", "z", MOMENT + 1))
    data = prepared(HEAD + f"a,7,{START}\na,7,{START}\na,8,{START}\n")
    assert load_histories(data, Settings(store=address)).stored == 2
    events = stored(address, "a")
    assert [(event.item, event.time - MOMENT) for event in events] == [(7, 0), (7, 0), (8, 0), ("z", 1)]
    assert events[0].event_id == "own"
    assert load_histories(data, Settings(store=address)).stored == 0


def test_many_stored_events_newer_than_the_log_hide_none_of_its_own(address: str, prepared: Prepare) -> None:
    newer = (Event(f"e{number}", "a", "z", MOMENT + 5_000 + number) for number in range(500))
    append(address, Event("own", "a", "x", MOMENT), *newer)
    assert load_histories(prepared(HEAD + f"a,x,{START}\n"), Settings(store=address)).stored == 0


def test_only_the_newest_events_that_an_answer_reads_are_loaded(address: str, prepared: Prepare) -> None:
    report = load_histories(prepared(LOG), Settings(store=address, stored_history_limit=3))
    assert (report.read, report.stored) == (20, 15)
    assert "15 events of 5 users: 15 are new" in report.sentence(address)
    assert "5 older ones are not loaded" in report.sentence(address)
    assert [event.item for event in stored(address, "u0")] == ["i1", "i2", "i0"]


def test_an_interrupted_load_continues(
    address: str, prepared: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here after three writes, as then the disk is full."""

    def begin(settings: Settings) -> Stores:
        stores, left = open_stores(settings), iter(range(3))
        write = stores.histories.append

        async def append(events: Sequence[Event]) -> int:
            if next(left, None) is None:
                raise HistoryUnavailableError("history store unavailable: disk full")
            return await write(events)

        stores.histories.append = append  # type: ignore[method-assign]
        return stores

    data = prepared(LOG)
    with monkeypatch.context() as context:
        context.setattr(loading, "WRITE_EVENTS", 2)
        context.setattr(loading, "open_stores", begin)
        with pytest.raises(
            ServiceError, match=r"disk full; 6 new events are stored, and the same command continues"
        ):
            load_histories(data, Settings(store=address))
    assert load_histories(data, Settings(store=address)).stored == 14
    assert [event.item for event in stored(address, "u1")] == ["i0", "i1", "i2", "i0"]


def test_a_store_that_deletes_by_time_takes_no_old_events_and_no_log_without_times(
    tmp_path: Path, prepared: Prepare
) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path}/h.sqlite", keep_days=3)
    report = load_histories(prepared(LOG), settings)
    assert (report.read, report.kept, report.stored) == (20, 0, 0)
    data = prepared("user_id,item_id\na,x\n", "ordered", columns={"in_file_order": True})
    with pytest.raises(ServiceError, match="has an order but no times, and with TURRET_KEEP_DAYS = 3"):
        load_histories(data, settings)


def test_a_dump_has_the_answers_that_events_name(address: str, tmp_path: Path) -> None:
    append(address, Event("e1", "a", "x", MOMENT, None, "0" * 32), Event("e2", "b", "y", MOMENT))
    dump_histories(Settings(store=address), ALL, tmp_path / "events.parquet")
    assert rows(tmp_path / "events.parquet") == [
        ("a", "x", 0, None, "e1", "0" * 32),
        ("b", "y", 0, None, "e2", None),
    ]


def rows(path: Path) -> list[tuple[Any, ...]]:
    frame = pl.read_parquet(path).with_columns(pl.col("timestamp").dt.epoch("ms") - MOMENT)
    return sorted(frame.rows())


def test_a_dump_has_the_stored_events(address: str, tmp_path: Path) -> None:
    append(address, Event("e1", "a", "x", MOMENT, "view"), Event("e2", "b", 7, MOMENT + 1))
    append(address, Event("e3", "a", "y", MOMENT))
    report = dump_histories(Settings(store=address), ALL, tmp_path / "new" / "events.parquet")
    assert (report.events, report.users, report.first, report.last) == (3, 2, MOMENT, MOMENT + 1)
    assert rows(tmp_path / "new" / "events.parquet") == [
        ("a", "x", 0, "view", "e1"),
        ("a", "y", 0, None, "e3"),
        ("b", "7", 1, None, "e2"),
    ]
    assert stat.S_IMODE((tmp_path / "new" / "events.parquet").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["events.parquet"]


def test_a_path_is_no_pattern_of_others(tmp_path: Path) -> None:
    """Beside each file lies one that its path would mean as a pattern."""
    odd, plain = tmp_path / "a[1]", tmp_path / "a1"
    log = pl.DataFrame({"item_id": ["x", "y"], "timestamp": [1, 2]})
    for folder, ids, figure in ((odd, ["x", "y"], 1.0), (plain, ["y", "x"], 2.0)):
        part = folder / "log" / ("user=[1]" if folder == odd else "user=1") / "part.parquet"
        part.parent.mkdir(parents=True)
        (log if folder == odd else log.select(other="item_id")).write_parquet(part)
        pl.DataFrame({"id": ids}).write_csv(folder / "look.ids.csv")
        pl.DataFrame({"item_id": ids, "title": ids}).write_parquet(folder / "items.parquet")
        np.save(folder / "look.npy", np.eye(2, dtype=np.float32))
        PerUser([1], np.zeros(1, bool), {"towers": {"ndcg": np.full(1, figure)}}).write(folder / "figures")
    config = {"source": odd / "log", "items": odd / "items.parquet"}
    vectors = {"vector": [f"look={odd / 'look.npy'}"]}
    target = prepare(PrepareConfig.model_validate({**config, "item_features": vectors}), odd / "out").folder
    data = PreparedData.open(target)
    assert (data.users.ids([0]), data.fields) == (["[1]"], {"title": ["x", "y"]})
    assert np.array_equal(np.asarray(data.item_features.columns["look"]), np.eye(2))
    assert load_per_user(odd / "figures").values["towers"]["ndcg"] == [1.0]
    address = f"sqlite:///{odd}/h.sqlite"
    append(address, Event("e1", "a", "x", MOMENT))
    dump_histories(Settings(store=address), ALL, odd / "dump.parquet")
    assert pl.read_parquet(odd / "dump.parquet", glob=False).height == 1


def test_strangers_are_dumped_as_sessions(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However their events are divided, and whatever the ids of users look like."""
    monkeypatch.setattr(dumping, "PART_EVENTS", 1)
    given = [("session:a#2", "view"), ("session:7", "buy"), ("7", None)]
    append(address, *(Event("e", user, 1, MOMENT, kind) for user, kind in given))
    report = dump_histories(Settings(store=address), TimeRange(0, NOW), tmp_path / "e.parquet")
    assert (report.events, report.users, report.sessions) == (3, 3, 2)
    assert "; 2 of the users are sessions (--session session_id); the next" in report.sentence(tmp_path)
    frame = pl.read_parquet(tmp_path / "e.parquet").sort("session_id")
    assert frame.select("user_id", "session_id", "kind").rows() == [
        (7, None, None),
        (None, "7", "buy"),
        (None, "a#2", "view"),
    ]


def test_loaded_events_have_their_kinds(address: str, prepared: Prepare) -> None:
    """An event that came from the store is known by its kind, too; one without has the default one."""
    own = [Event("v", "a", "x", MOMENT, "view"), Event("n", "b", "x", MOMENT)]
    append(address, *own)
    data = prepared(HEAD + f"a,x,{START}\na,x,{START}\na,y,{START}\nb,x,{START}\n")
    kinds = {"view": Kind(role="signal"), "no": Kind(role="ignored"), "buy": Kind()}
    manifest = data.manifest.model_copy(update={"kinds": kinds, "default_kind": "view"})
    data = replace(data, manifest=manifest, kinds=np.array([1, 0, 1, 0], dtype=np.int8))
    assert load_histories(data, Settings(store=address)).stored == 2
    found = {(event.user, event.item, event.kind) for event in stored(address, "a") + stored(address, "b")}
    assert found == {("a", "x", "view"), ("a", "x", "buy"), ("a", "y", "buy"), ("b", "x", None)}
    assert load_histories(data, Settings(store=address)).stored == 0


def test_the_negatives_of_a_kind_are_loaded_with_it(address: str, prepared: Prepare) -> None:
    """So a returned item stays left out, also one that no later target has for a negative."""
    rows = [("x", 0, "buy"), ("x", 3, "return"), ("y", 9, "buy"), ("y", 10, "banner"), ("y", 11, "return")]
    text = HEAD[:-1] + ",kind\n" + "".join(f"a,{item},{START + time},{kind}\n" for item, time, kind in rows)
    kinds = ["buy", "banner=negative", "return=negative:consume"]
    data = prepared(text + f"b,x,{START},banner\n", columns={"kind": "kind"}, kinds=kinds)
    assert load_histories(data, Settings(store=address)).kept == 5
    found = [(event.item, event.time // 1000 - START, event.kind) for event in stored(address, "a")]
    assert found == [(item, time, kind) for item, time, kind in rows]
    assert load_histories(data, Settings(store=address)).stored == 0


def test_raw_events_take_a_table_of_kinds(address: str, tmp_path: Path) -> None:
    rows = "".join(f"a,{item},{START},{kind}\n" for item, kind in (("x", "buy"), ("y", "view"), ("z", "ad")))
    (tmp_path / "log.csv").write_text(HEAD[:-1] + ",event\n" + rows)
    kinds = ("--kind", "buy", "--kind", "view=signal")
    output("history", "load", "log.csv", *kinds, "--store", address, folder=tmp_path)
    assert {(event.item, event.kind) for event in stored(address, "a")} == {("x", "buy"), ("y", "view")}
    assert len({event.event_id for event in stored(address, "a")}) == 2
    refused = prepared_log(tmp_path / "log.csv", {"columns.kind": "event"}, print)
    with pytest.raises(ConfigurationError, match="'event' would be lost"), refused:
        pass
    # Three events are no funnel, by which a table could be proposed.
    refused = prepared_log(tmp_path / "log.csv", {"columns.kind": "event", "kinds_auto": True}, print)
    with pytest.raises(ConfigurationError, match="'event' would be lost"), refused:
        pass


def test_raw_events_of_several_sources_are_loaded_as_one_log(address: str, tmp_path: Path) -> None:
    """The settings are those of a preparation; the visit of the web log is that of the order's customer."""
    (tmp_path / "web.jsonl").write_text(
        f'{{"sid": "s1", "item_id": "x", "event": "view", "time": {START}}}\n'
    )
    (tmp_path / "orders.csv").write_text(f"user_id,sid,item_id,state,time\na,s1,y,sold,{START + 60}\n")
    (tmp_path / "shop.toml").write_text(
        'kinds = {view = "signal", buy = "target"}\n'
        '[[sources]]\nname = "web"\nfile = "web.jsonl"\ncolumns = {session = "sid"}\n'
        '[[sources]]\nname = "orders"\nkinds = {sold = "buy"}\ncolumns = {session = "sid", kind = "state"}\n'
    )
    words = ("--config", "shop.toml", "--source", "orders:orders.csv", "--store", address)
    output("history", "load", *words, folder=tmp_path)
    assert {(event.item, event.kind) for event in stored(address, "a")} == {("x", "view"), ("y", "buy")}


@pytest.mark.parametrize("column", ["answer_id", "led_by"])
def test_events_of_a_log_keep_the_answers_that_they_name(address: str, tmp_path: Path, column: str) -> None:
    """Of equal events as many name an answer as in the log; other texts are told, and are no answers."""
    rows = [
        ("7", "x", 0, "buy", "a" * 32),
        ("7", "x", 0, "buy", ""),
        ("7", "x", 0, "return", "b" * 32),
        ("7", "y", 1, "buy", "an answer"),
        ("8", "x", 0, "buy", ""),
        ("9", "z", 2, "view", "c" * 32),
    ]
    lines = [f"{user},{item},{START + time},{kind},{answer}" for user, item, time, kind, answer in rows]
    (tmp_path / "log.csv").write_text("\n".join([f"{HEAD[:-1]},kind,{column}", *lines]) + "\n")
    kinds = ["--kind", "buy", "--kind", "view=signal", "--kind", "return=negative"]
    words = [*kinds, "--kind-column", "kind", "--store", address]
    words += [] if column == "answer_id" else ["--answer-column", column]
    said = output("history", "load", "log.csv", *words, folder=tmp_path)
    assert "3 events with the id of an answer" in said
    assert "1 event with a text for an answer that is not 32 hexadecimal digits" in said
    named = [(event.item, event.kind, event.answer_id) for event in stored(address, "7")]
    assert sorted(named, key=str) == [
        ("x", "buy", "a" * 32),
        ("x", "buy", None),
        ("x", "return", "b" * 32),
        ("y", "buy", None),
    ]
    assert [event.answer_id for user in ("8", "9") for event in stored(address, user)] == [None, "c" * 32]


def test_answers_of_stored_events_survive_a_dump_and_a_load(tmp_path: Path) -> None:
    first, second = (f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("first", "second"))
    events = [Event(f"e{place}", "a", place % 2, MOMENT + place, None, f"{place:032x}") for place in range(4)]
    append(first, *events, Event("s", "session:v", 1, MOMENT, None, "f" * 32))
    dump_histories(Settings(store=first), ALL, tmp_path / "e.parquet")
    words = ("--session", "session_id", "--store", second)
    output("history", "load", "e.parquet", *words, folder=tmp_path)
    for user in ("a", "session:v"):
        answers = [[event.answer_id for event in stored(store, user)] for store in (first, second)]
        assert answers[0] == answers[1]
        assert None not in answers[0]


def test_doubtful_rows_of_raw_events_are_told(tmp_path: Path) -> None:
    rows = f"a ,x,{START},False\na,y,{START + 1},True\na,z,2900000000,False\nb,z,2900000000,False\n"
    (tmp_path / "log.csv").write_text(HEAD[:-1] + ",refunded\n" + rows)
    said: list[str] = []
    with prepared_log(tmp_path / "log.csv", {}, said.append):
        pass
    assert len(said) == 3
    assert "ids of 'user_id' have blanks or marks without width around them" in said[0]
    assert "2 of 4 times of column 'timestamp' lie beyond tomorrow" in said[1]
    assert "'refunded' tells of returns, refunds or cancellations in 1 row" in said[2]


def test_a_dump_has_the_events_of_a_range_of_times(address: str, tmp_path: Path) -> None:
    append(address, *(Event(f"e{place}", "a", place, MOMENT + place) for place in range(5)))
    dump_histories(Settings(store=address), TimeRange(MOMENT + 1, MOMENT + 3), tmp_path / "e.parquet")
    assert [row[1:3] for row in rows(tmp_path / "e.parquet")] == [(1, 1), (2, 2)]


def test_users_are_counted_over_parts(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose events are in two parts is one user, and parts may differ in the type of their ids."""
    monkeypatch.setattr(dumping, "PART_EVENTS", 2)
    events = [Event(f"e{place}", f"{place // 1500}", place, MOMENT + place) for place in range(4_500)]
    append(address, *events)
    report = dump_histories(Settings(store=address), ALL, tmp_path / "e.parquet")
    assert (report.events, report.users) == (4_500, 3)
    assert rows(tmp_path / "e.parquet") == [
        (place // 1500, place, place, None, f"e{place}") for place in range(4_500)
    ]


@pytest.mark.parametrize("other", ["x", "07", "9" * 30])
def test_ids_are_integers_only_if_all_of_them_print_as_integers(tmp_path: Path, other: str) -> None:
    address = f"sqlite:///{tmp_path}/h.sqlite"
    append(address, Event("e1", "1", 1, MOMENT), Event("e2", "2", other, MOMENT))
    dump_histories(Settings(store=address), ALL, tmp_path / "e.parquet")
    assert sorted(row[:2] for row in rows(tmp_path / "e.parquet")) == [(1, "1"), (2, other)]


def test_a_loaded_log_is_dumped_as_a_log_that_prepares_to_the_same(
    address: str, tmp_path: Path, prepared: Prepare
) -> None:
    """Without options, and bit for bit: equal times keep their order."""
    lines = [f"u{place % 7},i{place % 5},{1_700_000_000 + place // 3}" for place in range(300)]
    data = prepared("user_id,item_id,timestamp\n" + "\n".join(lines))
    load_histories(data, Settings(store=address))
    dump_histories(Settings(store=address), ALL, tmp_path / "e.parquet")
    prepare(PrepareConfig(source=tmp_path / "e.parquet"), tmp_path / "again")
    assert PreparedData.open(tmp_path / "again").fingerprint == data.fingerprint


@pytest.mark.parametrize("has_users", [True, False])
def test_strangers_come_back_as_strangers(tmp_path: Path, prepared: Prepare, has_users: bool) -> None:
    """Those of the log, after a pause too, and new ones; one who has logged in since is a user."""
    address = f"sqlite:///{tmp_path}/h.sqlite"
    head, users = ("user_id,visit", ["u,,", ",a,"]) if has_users else ("visit", ["a,", "b,"])
    times = [START + place + 9_000 * (place > 4) for place in range(9)]
    lines = [f"{user}i{place % 4},{time},view" for user in users for place, time in enumerate(times)]
    data = prepared(
        "\n".join([f"{head},item_id,timestamp,kind", *lines]),
        columns={"session": "visit", "kind": "kind"},
        kinds=["view", "buy"],
        filters={"session_gap": "30m", "default_kind": "buy"},
    )
    before = data.users.ids(range(len(data.users)))
    assert "session:a#2" in before
    load_histories(data, Settings(store=address))
    dump_histories(Settings(store=address), ALL, tmp_path / "dump.parquet")
    assert append_events(tmp_path / "dump.parquet", data.folder).new == 0
    later = [
        ("n", "session:new", "i1", "view"),
        ("m", "session:late", "i2", None),
        ("l", "new user", "i2", None),
    ]
    append(address, *(Event(own, user, item, MOMENT + 10**8, kind) for own, user, item, kind in later))
    dump_histories(Settings(store=address), ALL, tmp_path / "dump.parquet")
    assert append_events(tmp_path / "dump.parquet", data.folder).new == 3
    data = PreparedData.open(data.folder)
    after = set(data.users.ids(range(len(data.users))))
    assert after == {*before, "session:new", "session:late", "new user"}


def test_nothing_is_written_where_the_store_holds_nothing(address: str, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"holds no events from the beginning to .* nothing is written"):
        dump_histories(Settings(store=address), TimeRange.of(None, "2024-01-01"), tmp_path / "e.parquet")
    assert not list(tmp_path.glob("*.parquet"))
    assert not list(tmp_path.glob(".e.parquet*"))


def test_a_failure_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e.parquet").write_text("before")
    address = f"sqlite:///{tmp_path}/h.sqlite"

    async def scan(*_: object) -> AsyncIterator[list[Event]]:
        yield [Event("e", "a", "x", MOMENT)]
        raise HistoryUnavailableError("history store unavailable: it went away")

    monkeypatch.setattr(SqliteHistory, "scan", scan)
    with pytest.raises(HistoryUnavailableError, match="it went away"):
        dump_histories(Settings(store=address), ALL, tmp_path / "e.parquet")
    assert (tmp_path / "e.parquet").read_text() == "before"
    assert not list(tmp_path.glob(".e.parquet*"))


def logged(data: PreparedData, **kept: int) -> list[Event]:
    limits = KEPT | kept
    portions = logged_events(data, limits["newest"], limits["oldest"], limits["now"])
    return [one for _, users in portions for user in users for one in user]


def test_times_outside_of_the_window_are_clamped_as_the_service_does(prepared: Prepare) -> None:
    """The id has the time of the log, which does not change between two calls."""
    stored = logged(
        prepared(HEAD + "a,x,-5\na,y,1700000001\na,z,1750000000\n", columns={"time_unit": "seconds"})
    )
    assert [event.time for event in stored] == [0, 1_700_000_001_000, NOW]
    assert [event.event_id for event in stored][::2] == ["log:-5000:0:x", "log:1750000000000:0:z"]


@pytest.mark.parametrize(
    "log",
    ["user_id,item_id\na,x\na,y\nb,x\na,x\n", "user_id,item_id,position\na,x,1.5\na,y,2\nb,x,7\na,x,2.5\n"],
)
def test_a_log_without_times_has_the_positions_in_a_history(prepared: Prepare, log: str) -> None:
    data = prepared(log, columns={"in_file_order": "position" not in log})
    shown = [(event.user, event.item, event.time) for event in logged(data)]
    assert shown == [("a", "x", 0), ("a", "y", 1), ("a", "x", 2), ("b", "x", 0)]
    newest = logged(data, newest=2)
    assert [event.event_id for event in newest] == ["log:1:0:y", "log:2:0:x", "log:0:0:x"]


def test_a_log_split_by_files_is_sorted_by_time_alone(tmp_path: Path) -> None:
    """Its test events may be older than those of training."""
    (tmp_path / "train.csv").write_text(HEAD + "a,x,1700000001\na,z,1700000003\n")
    (tmp_path / "test.csv").write_text(HEAD + "a,y,1700000002\n")
    split = FilesSplit(kind="files", train=tmp_path / "train.csv", test=tmp_path / "test.csv")
    prepare(PrepareConfig(split=split), tmp_path / "prepared")
    data = PreparedData.open(tmp_path / "prepared")
    assert [event.item for event in logged(data)] == ["x", "y", "z"]
    assert [event.item for event in logged(data, newest=1)] == ["z"]
