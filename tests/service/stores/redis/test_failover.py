"""A master that is killed, or hangs, under writes: what its replica confirmed is there afterwards."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.redis_work import work_with
from tests.support.redis_cluster import RedisCluster, own_cluster
from tests.support.redis_server import RedisServer
from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event, History
from turret.service.stores.redis.histories import RedisHistory
from turret.service.stores.redis.key_names import KeyNames

NAMES = KeyNames("turret:", is_cluster=True)
USERS = [f"u{number}" for number in range(30)]

pytestmark = pytest.mark.nightly


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
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
        before, deadline = len(self.acknowledged[user]), time.monotonic() + 30
        while len(self.acknowledged[user]) == before:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    async def during(self, work: object) -> None:
        writing = [asyncio.ensure_future(self.write(user)) for user in USERS]
        await asyncio.sleep(0.5)
        await work  # type: ignore[misc]
        self._stopped = True
        await asyncio.gather(*writing)


async def stored(store: RedisHistory) -> dict[str, History]:
    return await store.recent(USERS, 1_000_000)


async def until_promoted(cluster: RedisCluster, key: str, old: RedisServer) -> None:
    deadline = time.monotonic() + 30
    while await asyncio.to_thread(cluster.master_of, key, old) is old:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def test_no_event_is_lost_that_a_replica_confirmed(cluster: RedisCluster) -> None:
    """Killed twice in a row: the second time the master is the replica of the first."""

    async def work(store: RedisHistory) -> None:
        writers = Writers(store)

        async def kill_and_restart() -> None:
            key = NAMES.events(USERS[0])
            for _ in range(2):
                master = cluster.master_of(key)
                master.kill()
                await until_promoted(cluster, key, master)
                await asyncio.to_thread(master.start)
                await asyncio.to_thread(cluster.until_whole)
                await writers.until_more(USERS[0])  # of the new master

        await writers.during(kill_and_restart())
        for user, history in (await stored(store)).items():
            assert list(history.items) == writers.acknowledged[user]

    work_with(f"{cluster.address}?replicas=1", work, seconds=3.0)


def test_a_failover_within_the_time_limit_fails_no_call(cluster: RedisCluster) -> None:
    """Calls wait for the new master, which has no replica that could confirm them."""

    async def work(store: RedisHistory) -> None:
        writers = Writers(store)

        async def kill() -> None:
            key = NAMES.events(USERS[0])
            master = cluster.master_of(key)
            master.kill()
            await until_promoted(cluster, key, master)
            await asyncio.sleep(0.5)

        await writers.during(kill())
        assert writers.failures == 0
        assert await store.random_user() in USERS

    work_with(cluster.address, work, seconds=20.0)


def test_a_master_that_hangs_is_replaced_and_its_late_writes_do_not_count(cluster: RedisCluster) -> None:
    """It awakes as a replica; an event that only it has was never acknowledged."""

    async def work(store: RedisHistory) -> None:
        writers = Writers(store)

        async def hang() -> None:
            key = NAMES.events(USERS[0])
            master = cluster.master_of(key)
            with master.paused():
                await until_promoted(cluster, key, master)
                await asyncio.sleep(1)
            await asyncio.to_thread(cluster.until_whole)
            await asyncio.sleep(0.5)

        await writers.during(hang())
        for user, history in (await stored(store)).items():
            assert list(history.items) == writers.acknowledged[user]

    work_with(f"{cluster.address}?replicas=1", work, seconds=1.0)
