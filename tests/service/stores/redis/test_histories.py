"""A real server that is stopped, starved, filled up and replaced; the contract's suite has the rest."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.redis_work import EVENT, refused, work_with
from tests.support.redis_server import RedisServer, impostor, own_redis
from turret.service.errors import ServiceError
from turret.service.stores.contract import Event, History
from turret.service.stores.redis.histories import RedisHistory


@pytest.mark.nightly
def test_a_server_that_hangs_costs_the_time_that_was_given(server: RedisServer) -> None:
    """On connections that are open already, on new ones, and for those that wait for a connection."""

    async def work(store: RedisHistory) -> None:
        assert await store.append([EVENT]) == 1
        with server.paused():
            start = time.monotonic()
            words = await asyncio.gather(*(refused(store.recent(["u"], 1)) for _ in range(20)))
            assert time.monotonic() - start < 0.3 + 0.7
            assert all("no reply within 0.3 seconds" in one for one in words)
        assert await store.recent(["u"], 1) == {"u": History([1], [0])}

    work_with(server.address, work, connections=4)


def test_a_server_that_sleeps_is_not_waited_for(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        sleeper = threading.Thread(target=server.ask, args=("DEBUG", "SLEEP", "1.5"))
        sleeper.start()
        await asyncio.sleep(0.1)
        assert "no reply" in await refused(store.append([EVENT._replace(event_id="f")]))
        await asyncio.to_thread(sleeper.join)
        # The server got it all the same; who sends it again can't store it twice.
        await store.append([EVENT._replace(event_id="f")])
        assert (await store.events("u", 10))[0] == 2

    work_with(server.address, work)


def test_nobody_is_there(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        server.kill()
        for call in (store.append([EVENT]), store.recent(["u"], 1), store.events("u", 1), store.forget("u")):
            assert f"{server.address} unavailable" in await refused(call)

    work_with(server.address, work)


def test_a_restart_is_not_noticed_once_it_is_over(server: RedisServer) -> None:
    """Its connections and its script cache are gone; the data is in its append-only file."""

    async def work(store: RedisHistory) -> None:
        await asyncio.gather(*(store.append([EVENT._replace(event_id=f"{n}")]) for n in range(8)))
        server.kill()
        server.start()
        assert await store.append([EVENT._replace(event_id="after")]) == 1
        assert (await store.events("u", 10))[0] == 9
        assert await store.forget("u") == 9

    work_with(server.address, work)


def test_a_full_server_refuses_events_and_is_read(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        assert "maxmemory" in await refused(
            store.append([EVENT._replace(event_id=f"{n}") for n in range(10)])
        )
        assert await store.events("u", 10) == (1, [EVENT])
        assert await store.forget("u") == 1
        server.ask("CONFIG", "SET", "maxmemory", "0")
        assert await store.append([EVENT]) == 1

    work_with(server.address, work)


def test_a_replica_is_read_and_not_written(server: RedisServer, tmp_path: Path) -> None:
    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        await _until(lambda: replica.ask("DBSIZE") == server.ask("DBSIZE"))
        reader = RedisHistory(replica.address, seconds=1.0)
        assert await reader.recent(["u"], 1) == {"u": History([1], [0])}
        assert "read only replica" in await refused(reader.append([EVENT]))
        assert "name its primary" in (await reader.health_warnings())[0]
        await reader.close()

    with own_redis(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica:
        work_with(server.address, work)


def test_replicas_confirm_what_is_acknowledged(server: RedisServer, tmp_path: Path) -> None:
    async def work(store: RedisHistory) -> None:
        with own_redis(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica:
            await _until(lambda: "online" in str(server.ask("INFO", "replication")))
            assert await store.append([EVENT]) == 1
            assert replica.ask("ZCARD", "turret:user:u") == 1
        assert "fewer than 1 replicas" in await refused(store.append([EVENT._replace(event_id="f")]))
        assert (await store.events("u", 10))[0] == 2

    work_with(f"{server.address}?replicas=1", work, seconds=2.0)


def test_a_server_that_reads_its_files_is_not_there_yet(tmp_path: Path) -> None:
    async def work(store: RedisHistory) -> None:
        await _until(lambda: _connects(loading.port))
        assert "loading the dataset" in await refused(store.recent(["u"], 1))
        assert "loading the dataset" in await refused(store.append([EVENT]))

    with own_redis(tmp_path, appendonly="no") as loading:
        loading.ask("DEBUG", "POPULATE", "20000")
        loading.ask("SAVE")
        loading.kill()
        loading.config |= {"key-load-delay": "500", "loading-process-events-interval-bytes": "1024"}
        loading.begin()
        work_with(loading.address, work, seconds=5.0)


def test_wrong_answers_are_no_histories() -> None:
    """Of something that isn't a Redis, or one that says OK to everything."""
    for said in (
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n" * 3,
        b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n" * 3,
        b"?",
        b"",
    ):

        async def work(store: RedisHistory) -> None:
            for call in (store.append([EVENT]), store.recent(["u"], 1), store.events("u", 1)):
                await refused(call)

        with impostor(said) as port:
            work_with(f"redis://127.0.0.1:{port}/0", work)


def test_a_forgotten_user_leaves_no_key(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        await store.append([EVENT, Event("f", "u", 2, 2)])
        assert sorted(server.ask("KEYS", "*")) == [
            b"turret:arrival",
            b"turret:ids:u",
            b"turret:user:u",
        ]
        await store.forget("u")
        assert server.ask("KEYS", "*") == [b"turret:arrival"]

    work_with(server.address, work)


def test_what_is_not_kept_for_ever_leaves_by_itself(server: RedisServer) -> None:
    """The server deletes it, also of a user who never comes back; without an age nothing is deleted."""
    now = time.time_ns() // 1_000_000

    async def work(store: RedisHistory) -> None:
        await store.append([EVENT._replace(time=now), Event("old", "u", 2, now - 400)])
        await _until(lambda: server.ask("KEYS", "*") == [b"turret:arrival"])

    async def keep(store: RedisHistory) -> None:
        await store.append([EVENT])
        assert {server.ask("PTTL", key) for key in ("turret:ids:u", "turret:user:u")} == {-1}

    work_with(server.address, work, max_age=700)
    work_with(server.address, keep)


def test_every_call_is_one_round_trip(server: RedisServer) -> None:
    """A call of many users, or of many events, is one write to the socket and one read."""

    async def work(store: RedisHistory) -> None:
        await store.append([EVENT])
        await store.forget("u")  # the server has seen both scripts now
        before = _total(server, "total_reads_processed")
        await store.recent([f"u{number}" for number in range(50)], 10)
        await store.append([EVENT._replace(event_id=f"{number}") for number in range(50)])
        await store.events("u", 10)
        await store.forget("u")
        between = _total(server, "total_reads_processed")
        counting = _total(server, "total_reads_processed") - between
        assert between - before - counting == 4

    work_with(server.address, work)


def test_a_server_that_wants_a_password(server: RedisServer) -> None:
    async def denied(store: RedisHistory) -> None:
        words = await refused(store.append([EVENT]))
        assert "a-guess" not in words
        assert "unavailable" in words

    async def admitted(store: RedisHistory) -> None:
        assert await store.append([EVENT]) == 1

    server.ask("CONFIG", "SET", "requirepass", "s%e@cret")
    place = server.address.removeprefix("redis://")
    work_with(server.address, denied)
    work_with(f"redis://:a-guess@{place}", denied)
    work_with(f"redis://default:s%25e%40cret@{place}", admitted)


def test_two_prefixes_are_two_stores(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        other = RedisHistory(f"{server.address}?prefix=other:")
        assert await store.append([EVENT]) == await other.append([EVENT]) == 1
        assert await other.forget("u") == 1
        assert await store.events("u", 5) == (1, [EVENT])
        await other.close()

    work_with(server.address, work)


def test_an_address_that_can_not_be_read_is_refused() -> None:
    with pytest.raises(ServiceError, match="redis://"):
        RedisHistory("redis://host:nonsense")


def _total(server: RedisServer, name: str) -> int:
    return int(server.ask("INFO", "stats")[name])


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def _until(is_so: Callable[[], bool]) -> None:
    await asyncio.to_thread(_wait, is_so)


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, []),
        ({"appendfsync": "always"}, []),
        ({"appendonly": "no"}, ["set appendonly yes"]),
        ({"appendfsync": "no"}, ["set appendfsync everysec"]),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, ["set maxmemory-policy noeviction"]),
        ({"maxmemory": "100mb"}, []),
    ],
)
def test_settings_that_lose_events_are_warned_of(
    tmp_path: Path, config: dict[str, str], words: list[str]
) -> None:
    async def work(store: RedisHistory) -> None:
        warnings = await store.health_warnings()
        assert len(warnings) == len(words)
        for warning, part in zip(warnings, words, strict=True):
            assert part in " ".join(warning.split())

    with own_redis(tmp_path / "redis", **config) as server:
        work_with(server.address, work)


def test_a_server_that_tells_nothing_is_warned_of_too(server: RedisServer) -> None:
    async def work(store: RedisHistory) -> None:
        (warning,) = await store.health_warnings()
        assert "make sure that it has appendonly yes" in warning

    server.ask("ACL", "SETUSER", "turret", "on", ">pw", "~turret:*", "+@all", "-info", "-config")
    work_with(server.address.replace("redis://", "redis://turret:pw@"), work)
