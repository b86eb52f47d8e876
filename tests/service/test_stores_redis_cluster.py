"""A real cluster whose slots move and whose nodes fail; the contract has the rest."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.support.redis_cluster import RedisCluster, own_cluster
from tests.support.redis_server import EVENT, history, refused
from tests.support.until import eventually, until
from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event, History
from turret.service.stores.redis.client import read_address

NAMES = read_address("redis+cluster://host")
SLOT = key_slot(NAMES.events("u").encode())
KEYS = [NAMES.events("u"), NAMES.ids("u")]


pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with own_cluster(tmp_path_factory.mktemp("cluster"), node_timeout=15_000) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RedisCluster) -> Iterator[RedisCluster]:
    yield shared
    for node in shared.masters:
        node.ask("FLUSHALL")


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


@pytest.mark.parametrize("asked", [0, 1])
async def test_a_node_of_a_cluster_and_a_single_redis_are_told_apart(
    cluster: RedisCluster, asked: int
) -> None:
    """Each error names the scheme that works."""

    async with history(cluster.nodes[asked].address) as store:
        for user in ("a", "b", "c"):
            words = await refused(store.append([Event("e", user, 1, 0), Event("e", "x", 1, 0)]))
            assert "is a node of a Redis Cluster; name it redis+cluster://HOST:PORT" in words


async def test_replicas_that_confirm_are_those_of_the_events_own_master(cluster: RedisCluster) -> None:
    async with history(f"{cluster.address}?replicas=1", seconds=3.0) as store:
        assert await store.append([EVENT]) == 1
        assert await store.health_warnings() == []
    async with history(f"{cluster.address}?replicas=2", seconds=5.0) as doubtful:
        assert "fewer than 2 replicas have confirmed" in await refused(doubtful.append([EVENT]))


# A master that is killed, or hangs, under writes: what its replica confirmed is there afterwards.


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster whose masters may be killed: a replica takes over within a second or two."""
    with own_cluster(tmp_path / "cluster") as cluster:
        yield cluster


async def test_no_event_is_lost_that_a_replica_confirmed(failing: RedisCluster) -> None:
    """Its master is killed twice in a row: the second time it is the replica of the first."""
    acknowledged: list[int] = []

    async with history(f"{failing.address}?replicas=1", seconds=3.0) as store:

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
            return failing.master_of(KEYS[0], master) is not master

        writing = asyncio.create_task(write())
        for _ in range(2):
            await until_more()
            master = failing.master_of(KEYS[0])
            master.kill()
            await asyncio.to_thread(until, is_promoted, "a replica is promoted")
            await asyncio.to_thread(master.start)
            await asyncio.to_thread(failing.until_whole)
        await until_more()
        writing.cancel()
        found = list((await store.recent(["u"], 1_000_000))["u"].items)
        assert found in (acknowledged, [*acknowledged, len(acknowledged)])
