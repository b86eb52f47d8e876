"""A real Redis that hangs, ends, fills up or holds what others wrote; the contract has the rest."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.redis_server import EVENT, RedisServer, history, own_redis, refused
from tests.support.until import eventually
from turret.service.errors import HistoryDamagedError, ReplicasUnavailableError
from turret.service.overlay.fresh import is_valid
from turret.service.stores.contract import Change, Event, History, NewChange
from turret.service.stores.redis.shared import RedisItems, RedisRecords

pytestmark = pytest.mark.process
nightly = pytest.mark.nightly


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server to be stopped and broken."""
    with own_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with own_redis(tmp_path_factory.mktemp("redis"), appendfsync="no") as server:
        yield server


@pytest.fixture
def server(shared: RedisServer) -> Iterator[RedisServer]:
    """A server that is empty."""
    yield shared
    shared.ask("FLUSHALL")


async def test_a_server_that_hangs_or_ends_is_an_error_in_words_and_none_once_it_is_back(
    own: RedisServer,
) -> None:
    """On open connections, on new ones, and for those that wait for one; a restart loses the script cache."""

    async with history(own.address, connections=4) as store:
        await asyncio.gather(*(store.append([EVENT._replace(event_id=f"{n}")]) for n in range(8)))
        late = EVENT._replace(event_id="late")
        with own.paused():
            calls = [refused(store.recent(["u"], 1)) for _ in range(20)]
            words = await asyncio.gather(*calls, refused(store.append([late])))
            assert all("no reply within 0.3 seconds" in one for one in words)
        await store.append([late])  # the server may have got it all the same; it is not stored twice
        assert (await store.events("u", 10))[0] == 9
        own.kill()
        for call in (store.append([EVENT]), store.recent(["u"], 1), store.events("u", 1), store.forget("u")):
            assert f"{own.address} unavailable" in await refused(call)
        own.start()
        assert await store.append([EVENT._replace(event_id="after")]) == 1
        assert (await store.events("u", 10))[0] == 10
        assert await store.forget("u") == 10


async def test_a_full_server_refuses_events_and_is_read(own: RedisServer) -> None:
    async with history(own.address) as store:
        await store.append([EVENT])
        own.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert "maxmemory" in await refused(
            store.append([EVENT._replace(event_id=f"{n}") for n in range(10)])
        )
        assert await store.events("u", 10) == (1, [EVENT])
        assert await store.forget("u") == 1
        own.ask("CONFIG", "SET", "maxmemory", "0")
        assert await store.append([EVENT]) == 1


@nightly
async def test_replicas_confirm_what_is_acknowledged(own: RedisServer, tmp_path: Path) -> None:
    async with history(f"{own.address}?replicas=1", seconds=2.0) as store:
        with own_redis(tmp_path / "replica", replicaof=f"127.0.0.1 {own.port}") as replica:
            await eventually(lambda: "online" in str(own.ask("INFO", "replication")), "the replica follows")
            assert await store.append([EVENT]) == 1
            assert replica.ask("ZCARD", "turret:user{:u}") == 1
        assert "fewer than 1 replicas" in await refused(store.append([EVENT._replace(event_id="f")]))
        assert (await store.events("u", 10))[0] == 2


@nightly
async def test_a_user_leaves_no_key_when_forgotten_or_when_all_is_too_old(server: RedisServer) -> None:
    """The server deletes what has expired, also of a user who never comes back."""
    now = time.time_ns() // 1_000_000
    async with history(server.address) as store:
        await store.append([EVENT, Event("f", "u", 2, 2)])
        assert sorted(server.ask("KEYS", "*")) == [b"turret:ids{:u}", b"turret:user{:u}"]
        assert {server.ask("PTTL", key) for key in ("turret:ids{:u}", "turret:user{:u}")} == {-1}
        await store.forget("u")
        assert server.ask("KEYS", "*") == []
    async with history(server.address, keep_days=700 / 86_400_000) as store:
        await store.append([EVENT._replace(time=now), Event("old", "u", 2, now - 400)])
        await eventually(lambda: server.ask("KEYS", "*") == [], "the keys have expired")


@nightly
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"appendonly": "yes", "appendfsync": "everysec"}, []),
        ({"appendonly": "no"}, ["set appendonly yes"]),
        ({"appendfsync": "no"}, ["set appendfsync everysec"]),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, ["set maxmemory-policy noeviction"]),
        ({"maxmemory": "100mb"}, []),
    ],
)
async def test_settings_that_lose_events_are_warned_of(
    own: RedisServer, config: dict[str, str], words: list[str]
) -> None:
    for name, value in config.items():
        own.ask("CONFIG", "SET", name, value)
    async with history(own.address) as store:
        warnings = await store.health_warnings()
    assert len(warnings) == len(words)
    for warning, part in zip(warnings, words, strict=True):
        assert part in " ".join(warning.split())


# Keys with foreign data


@nightly
@pytest.mark.parametrize(
    "foreign",
    [("RPUSH", "turret:user{:u}", "x"), ("ZADD", "turret:user{:u}", "5", "x")],
    ids=["list", "member"],
)
async def test_foreign_data_is_no_history(server: RedisServer, foreign: tuple[str, ...]) -> None:
    """The error says so in a sentence; other users are not affected."""

    async with history(server.address) as store:
        await store.append([EVENT._replace(user="v")])
        server.ask(*foreign)
        for call in (store.recent(["u"], 5), store.events("u", 5)):
            with pytest.raises(HistoryDamagedError, match="is no history; delete it"):
                await call
        assert await store.recent(["v"], 5) == {"v": History([1], [0])}


@nightly
async def test_what_somebody_else_wrote_among_the_items_stands_for_itself_alone(
    server: RedisServer,
) -> None:
    """It is read as what is no item, which `service.overlay.fresh` leaves alone; the rest is read."""
    store = RedisItems(server.address)
    await store.change([NewChange("19", 5, b"{}", b"{}")])
    for member, kept in ((b"\xff\xfe", b"x"), (b"b", b"{}"), (b"gone", None)):
        server.ask("ZADD", "turret:{shared}:items:order", 27, member)
        if kept:
            server.ask("HSET", "turret:{shared}:items", member, kept)
    found = {change.item: change for change in (await store.changes(0)).items}
    assert found.pop("19") == Change("19", 1, 5, b"{}", b"{}")
    assert set(found) == {"\\xff\\xfe", "b", "gone"}
    assert not any(change.is_withdrawn or is_valid(change) for change in found.values())
    await store.close()


# The record of members


@asynccontextmanager
async def records_of(address: str) -> AsyncIterator[RedisRecords]:
    records = RedisRecords(address, "default", 0.5)
    try:
        yield records
    finally:
        await records.close()


@nightly
async def test_a_record_that_was_lost_and_written_again_has_another_revision(server: RedisServer) -> None:
    """Also where its clock was set back meanwhile."""

    async with records_of(server.address) as records:
        revisions = []
        for _ in range(3):
            await records.swap(b"", b"one")
            revisions.append((await records.poll()).record)
            server.ask("DEL", "turret:{shared}:replicas:default:record")
            assert (await records.poll()).record == 0
            assert await records.read() == b""
        assert len(set(revisions)) == 3
        server.ask("HSET", "turret:{shared}:replicas:default:record", "revision", 2**53 - 9)
        await records.swap(b"", b"one")
        assert (await records.poll()).record == 2**53 - 8


@pytest.mark.parametrize(
    "damage",
    [
        ("SET", "turret:{shared}:replicas:default:record", "x"),
        ("HSET", "turret:{shared}:replicas:default:record", "revision", "x"),
        ("HSET", "turret:{shared}:replicas:default:record", "revision", "9" * 5_000),
    ],
    ids=["type", "text", "number"],
)
async def test_a_damaged_record_is_said_with_the_way_back(
    server: RedisServer, damage: tuple[str, ...]
) -> None:
    async with records_of(server.address) as records:
        server.ask(*damage)
        with pytest.raises(ReplicasUnavailableError, match=r":replicas:default:record.* delete"):
            await records.poll()
        server.ask("DEL", "turret:{shared}:replicas:default:record")
        assert await records.swap(b"", b"one") == b"one"
        assert (await records.poll()).record > 0


@nightly
async def test_a_poll_has_the_number_of_the_last_change_and_groups_have_records_of_their_own(
    server: RedisServer,
) -> None:
    """As have prefixes."""

    async with records_of(server.address) as records:
        items = RedisItems(server.address)
        assert (await records.poll()).items == 0
        (number,) = await items.change([NewChange("7", 0, b"{}", b"{}")])
        await records.announce(number + 5)
        assert (await records.poll()).items == number
        await items.close()
        await records.swap(b"", b"one")
        for address, group in ((server.address, "shop"), (f"{server.address}?prefix=x:", "default")):
            other = RedisRecords(address, group, 0.5)
            assert await other.read() == b""
            await other.close()
