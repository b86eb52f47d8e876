"""Keys under the prefix with foreign data, and keys that Redis has evicted."""

import time

import pytest

from tests.support.redis_work import EVENT, refused, work_with
from tests.support.redis_server import RedisServer
from turret.service.errors import HistoryDamagedError
from turret.service.stores.contract import Event, History
from turret.service.stores.redis.histories import RedisHistory

FOREIGN = {
    "a list": ("RPUSH", "turret:user:u", "x"),
    "a text": ("SET", "turret:user:u", "x"),
    "a member": ("ZADD", "turret:user:u", "5", "x"),
    "a member of letters": ("ZADD", "turret:user:u", "5", "000000000000001nonsense"),
    "an object": ("ZADD", "turret:user:u", "5", '000000000000001{"a": 1}'),
    "a truth": ("ZADD", "turret:user:u", "5", '000000000000001["e", true, null]'),
    "a number as an id": ("ZADD", "turret:user:u", "5", "000000000000001[1, 2, null]"),
    "a broken time": ("ZADD", "turret:user:u", "5.5", '000000000000001["e", 2, null]'),
    "no time": ("ZADD", "turret:user:u", "inf", '000000000000001["e", 2, null]'),
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_foreign_data_is_no_history(server: RedisServer, foreign: str) -> None:
    """The error says so in a sentence; other users are not affected."""

    async def work(store: RedisHistory) -> None:
        await store.append([EVENT._replace(user="v")])
        server.ask(*FOREIGN[foreign])
        for call in (store.recent(["u"], 5), store.events("u", 5)):
            with pytest.raises(HistoryDamagedError, match="is no history; delete it"):
                await call
        assert await store.recent(["v"], 5) == {"v": History([1], [0])}

    work_with(server.address, work)


@pytest.mark.parametrize(
    "foreign",
    [
        ("SET", "turret:user:v", "x"),
        ("SET", "turret:ids:v", "x"),
        ("RPUSH", "turret:ids:v", "x"),
        ("ZADD", "turret:user:v", "5", "x"),
        ("SET", "turret:arrival", "x"),
        ("RPUSH", "turret:arrival", "x"),
    ],
)
def test_nothing_of_a_call_is_stored_where_one_of_its_keys_is_foreign(
    server: RedisServer, foreign: tuple[str, ...]
) -> None:
    async def work(store: RedisHistory) -> None:
        server.ask(*foreign)
        await refused(store.append([EVENT, Event("f", "v", 1, 1)]))
        assert server.ask("DBSIZE") == 1
        server.ask("UNLINK", foreign[1])
        assert await store.append([EVENT, Event("f", "v", 1, 1)]) == 2

    work_with(server.address, work)


def test_ids_that_redis_has_evicted_are_rebuilt_from_the_events(server: RedisServer) -> None:
    """With a maxmemory-policy other than noeviction, Redis deletes either key of a user."""
    events = [Event("e1", "u", 1, 1), Event("é\0\n", "u", "i", 2, "view")]

    async def work(store: RedisHistory) -> None:
        assert await store.append(events) == 2
        server.ask("UNLINK", "turret:ids:u")
        assert await store.append([*events, Event("new", "u", 5, 2)]) == 1
        assert await store.recent(["u"], 10) == {"u": History([1, "i", 5], [1, 2, 2])}
        server.ask("UNLINK", "turret:ids:u")
        assert await store.forget("u") == 3
        assert server.ask("KEYS", "*") == [b"turret:arrival"]

    work_with(server.address, work)


def test_events_that_redis_has_evicted_are_new_when_they_are_sent_again(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        assert await store.append([EVENT]) == 1
        server.ask("UNLINK", "turret:user:u")
        assert await store.append([EVENT]) == 1
        assert await store.events("u", 10) == (1, [EVENT])

    work_with(server.address, work)


def test_rebuilt_ids_lack_those_of_expired_events(server: RedisServer) -> None:
    now = time.time_ns() // 1_000_000
    old, young = Event("old", "u", 1, now - 10_000), Event("young", "u", 2, now)

    async def write(store: RedisHistory) -> None:
        await store.append([old, young])
        server.ask("UNLINK", "turret:ids:u")

    async def work(store: RedisHistory) -> None:
        assert await store.append([young, old._replace(item=3, time=now)]) == 1
        assert await store.recent(["u"], 10) == {"u": History([2, 3], [now, now])}
        assert 0 < server.ask("PTTL", "turret:ids:u") <= 5_000

    work_with(server.address, write)
    work_with(server.address, work, max_age=5_000)
