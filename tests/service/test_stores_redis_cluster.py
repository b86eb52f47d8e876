"""A real cluster whose slots move and whose nodes fail; the contract has the rest."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.support.redis_cluster import RedisCluster, own_cluster
from tests.support.redis_server import RedisServer
from tests.support.redis_work import EVENT, refused, work_with
from tests.support.until import eventually, until
from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.contract import Event, History
from turret.service.stores.redis.client import read_address
from turret.service.stores.redis.histories import RedisHistory

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


def ends(cluster: RedisCluster) -> tuple[RedisServer, RedisServer]:
    """The master of SLOT, and another one."""
    source = cluster.owner(SLOT)
    return source, next(node for node in cluster.masters if node is not source)


def begin_move(cluster: RedisCluster, source: RedisServer, target: RedisServer) -> None:
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", cluster.id_of(source))
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", cluster.id_of(target))


def move_keys(source: RedisServer, target: RedisServer, *keys: str) -> None:
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)


def end_move(cluster: RedisCluster, source: RedisServer, target: RedisServer) -> None:
    for node in (target, source):
        node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", cluster.id_of(target))


def move_back(cluster: RedisCluster, source: RedisServer, target: RedisServer) -> None:
    """End a move wherever it stands, and take the slot back, without its keys."""
    for node in (source, target):
        node.ask("FLUSHALL")
    end_move(cluster, source, target)
    end_move(cluster, target, source)


def test_a_slot_that_moves_is_followed(cluster: RedisCluster) -> None:
    """Before the move, while the keys have moved and the slot has not (ASK), and after it (MOVED)."""
    source, target = ends(cluster)

    async def work(store: RedisHistory) -> None:
        assert await store.append([EVENT]) == 1
        begin_move(cluster, source, target)
        assert await store.append([EVENT._replace(event_id="f", item=2)]) == 1
        move_keys(source, target, *KEYS)
        assert await store.append([EVENT._replace(event_id="g", item=3)]) == 1
        assert await store.append([EVENT]) == 0
        assert await store.recent(["u", "other"], 5) == {
            "u": History([1, 2, 3], [0] * 3),
            "other": History([], []),
        }
        end_move(cluster, source, target)
        assert await store.append([EVENT._replace(event_id="h", item=4)]) == 1
        assert (await store.events("u", 5))[0] == 4
        assert await store.forget("u") == 4

    try:
        work_with(cluster.address, work, seconds=3.0)
    finally:
        move_back(cluster, source, target)


def test_a_user_whose_keys_are_half_moved_is_waited_for(cluster: RedisCluster) -> None:
    """TRYAGAIN, until the move ends or the time is over; then the call may be repeated."""
    source, target = ends(cluster)

    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        begin_move(cluster, source, target)
        move_keys(source, target, KEYS[0])
        more = EVENT._replace(event_id="f")
        assert "unavailable" in await refused(store.append([more]))
        call = asyncio.ensure_future(store.append([more]))
        await asyncio.sleep(0)
        move_keys(source, target, *KEYS)
        assert await call == 1
        assert (await store.events("u", 5))[0] == 2

    try:
        work_with(cluster.address, work, seconds=1.0)
    finally:
        move_back(cluster, source, target)


def test_an_error_of_one_user_leaves_the_others_and_a_repeated_call_completes_it(
    cluster: RedisCluster,
) -> None:
    """Atomic for each user: a cluster has no transaction over slots."""
    users = [f"u{number}" for number in range(20)]
    events = [Event(kind, user, 1, 0) for user in users for kind in ("a", "b")]

    async def work(store: RedisHistory) -> None:
        key = NAMES.events("u7")
        cluster.master_of(key).ask("SET", key, "x")
        with pytest.raises(HistoryDamagedError, match="or choose another prefix"):
            await store.append(events)
        for user in users[:7]:
            assert (await store.events(user, 5))[0] in (0, 2)
        cluster.master_of(key).ask("DEL", key)
        await store.append(events)
        assert [(await store.events(user, 5))[0] for user in users] == [2] * 20

    work_with(cluster.address, work, seconds=3.0)


@pytest.mark.parametrize("asked", [0, 1])
def test_a_node_of_a_cluster_and_a_single_redis_are_told_apart(cluster: RedisCluster, asked: int) -> None:
    """Each error names the scheme that works."""

    async def work(store: RedisHistory) -> None:
        for user in ("a", "b", "c"):
            words = await refused(store.append([Event("e", user, 1, 0), Event("e", "x", 1, 0)]))
            assert "is a node of a Redis Cluster; name it redis+cluster://HOST:PORT" in words

    work_with(cluster.nodes[asked].address, work)


def test_replicas_that_confirm_are_those_of_the_events_own_master(cluster: RedisCluster) -> None:
    async def work(store: RedisHistory) -> None:
        assert await store.append([EVENT]) == 1
        try:
            assert "fewer than 2 replicas have confirmed" in await refused(doubtful.append([EVENT]))
        finally:
            await doubtful.close()
        assert await store.health_warnings() == []

    doubtful = RedisHistory(f"{cluster.address}?replicas=2", seconds=2.0)
    work_with(f"{cluster.address}?replicas=1", work, seconds=3.0)


# A master that is killed, or hangs, under writes: what its replica confirmed is there afterwards.

USERS = [f"u{number}" for number in range(30)]


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[RedisCluster]:
    """A cluster whose masters may be killed: a replica takes over within a second or two."""
    with own_cluster(tmp_path / "cluster") as cluster:
        yield cluster


class Writers:
    """Write events until they are stopped; a failed call is repeated until it is acknowledged."""

    def __init__(self, store: RedisHistory) -> None:
        self._store = store
        self._stopped = False
        self.acknowledged: dict[str, list[int]] = {user: [] for user in USERS}
        self.failures = 0

    async def write(self, user: str) -> None:
        number = 0
        while not self._stopped:
            try:
                await self._store.append([Event(f"e{number}", user, number, number)])
            except HistoryUnavailableError:
                self.failures += 1
                await asyncio.sleep(0.05)
            else:
                self.acknowledged[user].append(number)
                number += 1

    async def until_more(self, user: str) -> None:
        """Wait until a further event of the user is acknowledged."""
        acknowledged = self.acknowledged[user]
        before = len(acknowledged)
        await eventually(lambda: len(acknowledged) > before, "a further event is acknowledged")

    async def during(self, work: object) -> None:
        writing = [asyncio.ensure_future(self.write(user)) for user in USERS]
        await self.until_more(USERS[0])
        await work  # type: ignore[misc]
        self._stopped = True
        await asyncio.gather(*writing)

    async def check(self) -> None:
        """All acknowledged events are there; a last call that failed may have stored its event, too."""
        for user, history in (await self._store.recent(USERS, 1_000_000)).items():
            acknowledged = self.acknowledged[user]
            assert list(history.items) in (acknowledged, [*acknowledged, len(acknowledged)])


async def until_promoted(cluster: RedisCluster, key: str, old: RedisServer) -> None:
    await asyncio.to_thread(until, lambda: cluster.master_of(key, old) is not old, "a replica is promoted")


def test_no_event_is_lost_that_a_replica_confirmed(failing: RedisCluster) -> None:
    """Killed twice in a row: the second time the master is the replica of the first."""

    async def work(store: RedisHistory) -> None:
        writers = Writers(store)

        async def kill_and_restart() -> None:
            key = NAMES.events(USERS[0])
            for _ in range(2):
                master = failing.master_of(key)
                master.kill()
                await until_promoted(failing, key, master)
                await asyncio.to_thread(master.start)
                await asyncio.to_thread(failing.until_whole)
                await writers.until_more(USERS[0])  # of the new master

        await writers.during(kill_and_restart())
        await writers.check()

    work_with(f"{failing.address}?replicas=1", work, seconds=3.0)
