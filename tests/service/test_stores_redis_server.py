"""A real Redis, or a cluster of some, that hangs, ends, fills up or holds keys of others; the contract has
the rest."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.support.redis_cluster import RedisCluster, own_cluster
from tests.support.redis_server import EVENT, RedisServer, history, own_redis, refused
from tests.support.until import eventually, until
from turret.service.errors import HistoryDamagedError, HistoryUnavailableError, ReplicasUnavailableError
from turret.service.overlay.fresh import is_valid
from turret.service.stores.contract import Change, Event, History, NewChange
from turret.service.stores.redis.client import read_address
from turret.service.stores.redis.shared import RedisItems, RedisRecords

pytestmark = pytest.mark.process
nightly = pytest.mark.nightly


@asynccontextmanager
async def records_of(address: str, group: str = "default") -> AsyncIterator[RedisRecords]:
    records = RedisRecords(address, group, 0.5)
    try:
        yield records
    finally:
        await records.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with own_redis(tmp_path / "redis") as server:
        yield server


async def test_a_server_that_hangs_or_ends_is_an_error_in_words_and_none_once_it_is_back(
    server: RedisServer,
) -> None:
    """On open connections, on new ones, and for those that wait for one; a restart loses the script cache."""
    async with history(server.address, connections=4) as store, records_of(server.address) as records:
        await asyncio.gather(*(store.append([EVENT._replace(event_id=f"{n}")]) for n in range(8)))
        late = EVENT._replace(event_id="late")
        with server.paused():
            calls = [refused(store.recent(["u"], 1)) for _ in range(20)]
            words = await asyncio.gather(*calls, refused(store.append([late])))
            assert all("no reply within 0.3 seconds" in one for one in words)
        await store.append([late])  # the server may have got it all the same; it is not stored twice
        assert (await store.events("u", 10))[0] == 9
        server.kill()
        for call in (store.append([EVENT]), store.recent(["u"], 1), store.events("u", 1), store.forget("u")):
            assert f"{server.address} unavailable" in await refused(call)
        with pytest.raises(ReplicasUnavailableError, match=f"{server.address} unavailable"):
            await records.poll()
        server.start()
        assert await store.append([EVENT._replace(event_id="after")]) == 1
        assert (await store.events("u", 10))[0] == 10
        assert await store.forget("u") == 10


async def test_a_full_server_refuses_events_and_is_read(server: RedisServer) -> None:
    async with history(server.address) as store:
        await store.append([EVENT])
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert "maxmemory" in await refused(store.append([EVENT._replace(event_id="f")]))
        assert await store.events("u", 10) == (1, [EVENT])
        assert await store.forget("u") == 1
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await store.append([EVENT]) == 1


@nightly
async def test_replicas_confirm_what_is_acknowledged(server: RedisServer, tmp_path: Path) -> None:
    async with history(f"{server.address}?replicas=1", seconds=2.0) as store:
        with own_redis(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica:
            await eventually(
                lambda: "online" in str(server.ask("INFO", "replication")), "the replica follows"
            )
            assert await store.append([EVENT]) == 1
            assert replica.ask("ZCARD", "turret:user{:u}") == 1
        assert "fewer than 1 replicas" in await refused(store.append([EVENT._replace(event_id="f")]))
        assert (await store.events("u", 10))[0] == 2


@nightly
async def test_the_server_deletes_what_is_left_of_a_user(server: RedisServer) -> None:
    """The mark of a deletion after some minutes, and what has expired, also if the user never comes back."""
    now = time.time_ns() // 1_000_000
    async with history(server.address) as store:
        await store.append([EVENT, Event("f", "u", 2, 2)])
        assert sorted(server.ask("KEYS", "*{:u}")) == [b"turret:ids{:u}", b"turret:user{:u}"]
        assert {server.ask("PTTL", key) for key in ("turret:ids{:u}", "turret:user{:u}")} == {-1}
        await store.forget("u")
        assert server.ask("KEYS", "*{:u}") == [b"turret:ids{:u}"]
        assert 0 < server.ask("PTTL", "turret:ids{:u}") <= 600_000
        server.ask("DEL", "turret:ids{:u}")
    async with history(server.address, keep_days=700 / 86_400_000) as store:
        await store.append([EVENT._replace(time=now), Event("old", "u", 2, now - 400)])
        await eventually(lambda: server.ask("KEYS", "*{:u}") == [], "the keys have expired")


@nightly
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"appendonly": "no"}, ["set appendonly yes"]),
        ({"appendfsync": "no"}, ["set appendfsync everysec"]),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, ["set maxmemory-policy noeviction"]),
        ({"maxmemory": "100mb"}, []),
    ],
)
async def test_settings_that_lose_events_are_warned_of(
    server: RedisServer, config: dict[str, str], words: list[str]
) -> None:
    for name, value in config.items():
        server.ask("CONFIG", "SET", name, value)
    async with history(server.address) as store:
        warnings = await store.health_warnings()
    assert len(warnings) == len(words)
    for warning, part in zip(warnings, words, strict=True):
        assert part in " ".join(warning.split())


async def test_an_append_that_reaches_the_server_after_a_deletion_stores_nothing(server: RedisServer) -> None:
    """Its caller has given up; a later one stores the same event, also beside those of other users."""
    async with history(server.address) as store:
        await store.append([EVENT])
        late_events = {"u": [EVENT._replace(event_id="late")], "v": [EVENT._replace(user="v")]}
        late = store._appending(late_events, {}, True)
        for deleted in (1, 0):
            assert await store.forget("u") == deleted
            await store._redis.execute([late], is_write=True)
        assert await store.events("u", 9) == (0, [])
        assert await store.events("v", 9) == (0, [])
        assert await store.append([EVENT, EVENT._replace(user="v"), EVENT._replace(user="w")]) == 3
        assert await store.append([EVENT]) == 0
        # The mark has ended, and the next append removes it.
        server.ask("ZADD", "turret:ids{:u}", "1", b"\xff")
        assert await store.append([EVENT]) == 0
        assert server.ask("ZRANGE", "turret:ids{:u}", 0, -1) == [b"e"]
        assert server.ask("PTTL", "turret:ids{:u}") == -1


# --- Keys with foreign data


FOREIGN = ("x", "5", '"abc"', '["e",1]', '["e",{},null]', '["e",true,null]', "[5,1,null]", '["e",1,[]]', "{}")


@nightly
@pytest.mark.parametrize(
    "foreign",
    [
        ("RPUSH", "turret:user{:u}", "x"),
        *(("ZADD", "turret:user{:u}", "5", f"{0:016}{fields}") for fields in FOREIGN),
        *(("ZADD", "turret:user{:u}", score, f'{0:016}["e",1,null]') for score in ("1e300", "inf", "-inf")),
    ],
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


# --- The record of members


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
            async with records_of(address, group) as other:
                assert await other.read() == b""


# --- A cluster whose slots move and whose nodes fail

NAMES = read_address("redis+cluster://host")
SLOT = key_slot(NAMES.events("u").encode())
KEYS = [NAMES.events("u"), NAMES.ids("u")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster whose masters may be killed: a replica takes over within a second or two."""
    with own_cluster(tmp_path / "cluster") as cluster:
        yield cluster


@nightly
async def test_a_slot_that_moves_is_followed(cluster: RedisCluster) -> None:
    """Before the move, while the keys have moved and the slot has not (ASK), and after it (MOVED)."""
    source = cluster.owner(SLOT)
    target = next(node for node in cluster.masters if node is not source)
    async with history(cluster.address, seconds=3.0) as store:
        assert await store.append([EVENT]) == 1
        target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", cluster.id_of(source))
        source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", cluster.id_of(target))
        assert await store.append([EVENT._replace(event_id="f", item=2)]) == 1
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *KEYS)
        assert await store.append([EVENT._replace(event_id="g", item=3)]) == 1
        assert await store.append([EVENT]) == 0
        assert (await store.recent(["u", "other"], 5))["u"] == History([1, 2, 3], [0] * 3)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", cluster.id_of(target))
        assert await store.append([EVENT._replace(event_id="h", item=4)]) == 1
        assert (await store.events("u", 5))[0] == 4
        assert await store.forget("u") == 4


@nightly
async def test_a_node_of_a_cluster_that_is_taken_for_a_redis_names_the_scheme_that_works(
    cluster: RedisCluster,
) -> None:
    async with history(cluster.nodes[0].address) as store:
        for user in ("a", "b", "c"):
            words = await refused(store.append([Event("e", user, 1, 0), Event("e", "x", 1, 0)]))
            assert "is a node of a Redis Cluster; name it redis+cluster://HOST:PORT" in words


@nightly
async def test_no_event_is_lost_that_a_replica_confirmed(cluster: RedisCluster) -> None:
    """Its master is killed twice in a row: the second time it is the replica of the first."""
    acknowledged: list[int] = []
    async with history(f"{cluster.address}?replicas=1", seconds=3.0) as store:

        async def write() -> None:
            while True:
                number = len(acknowledged)
                try:
                    await store.append([Event(f"e{number}", "u", number, number)])
                except HistoryUnavailableError:
                    await asyncio.sleep(0.05)
                else:
                    acknowledged.append(number)

        async def until_more() -> None:
            before = len(acknowledged)
            await eventually(lambda: len(acknowledged) > before, "a further event is acknowledged")

        def is_promoted() -> bool:
            return cluster.master_of(KEYS[0], master) is not master

        writing = asyncio.create_task(write())
        for _ in range(2):
            await until_more()
            master = cluster.master_of(KEYS[0])
            master.kill()
            await asyncio.to_thread(until, is_promoted, "a replica is promoted")
            await asyncio.to_thread(master.start)
            await asyncio.to_thread(cluster.until_whole)
        await until_more()
        writing.cancel()
        found = list((await store.recent(["u"], 1_000_000))["u"].items)
        assert found in (acknowledged, [*acknowledged, len(acknowledged)])
