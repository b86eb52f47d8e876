"""Fault 23: the store of histories is down, slow, or answers what it shouldn't."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sending import acknowledged, event, recommended, stored, until
from tests.support.redis_server import RedisServer, impostor, own_redis
from tests.support.service_process import Process, Start

BUDGET = 0.4
SETTINGS = {"history_timeout": BUDGET, "write_timeout": BUDGET, "breaker_failures": 3, "breaker_seconds": 1.0}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Synced before each reply: else Redis delays writes on a busy disk, and loses them when killed."""
    with own_redis(tmp_path / "redis", appendfsync="always") as server:
        yield server


def goes_on_without(service: Process) -> None:
    """Answers come without the stored history, events are refused, and soon nobody waits for the store."""
    for _ in range(4):
        start = time.monotonic()
        assert "history" in recommended(service)["degraded"]
        assert not acknowledged(service, event("lost"))
        assert time.monotonic() - start < 2 * BUDGET + 1.0
    until(lambda: _seconds(service) < 0.1)
    given = service.client.post("/v1/recommend", json={"user_id": 7, "history": [101]}).json()
    assert "history" not in given["degraded"]
    assert given["items"][0]["source"] == "towers"
    assert service.client.get("/readyz").status_code == 200


def comes_back(service: Process, name: str) -> None:
    """By itself; what is sent again is stored once."""
    until(lambda: acknowledged(service, event(name)))
    assert acknowledged(service, event(name))
    until(lambda: recommended(service)["degraded"] == [])


def _seconds(service: Process) -> float:
    start = time.monotonic()
    assert "history" in recommended(service)["degraded"]
    acknowledged(service, event("lost"))
    return time.monotonic() - start


@pytest.mark.nightly
@pytest.mark.fault(23)
def test_a_redis_that_hangs(start: Start, redis: RedisServer) -> None:
    service = start(store=redis.address, **SETTINGS)
    assert acknowledged(service, event("before"))
    with redis.paused():
        goes_on_without(service)
    comes_back(service, "after")
    assert set(stored(service)) - {"lost"} == {"before", "after"}
    assert recommended(service)["items"][0]["source"] == "towers"


@pytest.mark.nightly
@pytest.mark.fault(23)
def test_a_redis_that_is_slow_by_five_seconds(start: Start, redis: RedisServer) -> None:
    service = start(store=redis.address, **SETTINGS)
    assert acknowledged(service, event("before"))
    sleeper = threading.Thread(target=redis.ask, args=("DEBUG", "SLEEP", "5"))
    sleeper.start()
    time.sleep(0.2)
    goes_on_without(service)
    sleeper.join()
    comes_back(service, "after")
    assert set(stored(service)) - {"lost"} == {"before", "after"}


@pytest.mark.fault(23)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_redis_that_is_gone_and_comes_back(start: Start, redis: RedisServer, workers: int) -> None:
    service = start(store=redis.address, workers=workers, **SETTINGS)
    kept = [f"{number}" for number in range(20) if acknowledged(service, event(f"{number}"))]
    redis.kill()
    goes_on_without(service)
    redis.start()
    comes_back(service, "after")
    assert set(stored(service)) == {*kept, "after"}
    assert len(kept) == 20


@pytest.mark.fault(23)
def test_a_service_starts_without_its_redis(start: Start, redis: RedisServer) -> None:
    """It says so, without the password, and finds it when it is there."""
    redis.kill()
    service = start(store=redis.address.replace("redis://", "redis://default:a-secret@"), **SETTINGS)
    goes_on_without(service)
    redis.config["requirepass"] = "a-secret"
    redis.start()
    comes_back(service, "after")
    status, said = service.stop()
    assert status == 0
    assert f"{redis.address} unavailable" in said
    assert "serving without stored histories" in said
    assert "a-secret" not in said + service.greeting


@pytest.mark.fault(23)
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n" * 3, b""])
def test_wrong_answers_are_not_taken_for_histories(start: Start, said: bytes) -> None:
    with impostor(said) as port:
        goes_on_without(start(store=f"redis://127.0.0.1:{port}/0", **SETTINGS))


@pytest.mark.fault(23)
def test_a_redis_that_is_full_or_read_only_still_gives_histories(start: Start, redis: RedisServer) -> None:
    service = start(store=redis.address, **SETTINGS)
    assert acknowledged(service, event("before"))
    for refusal in (("maxmemory", "1mb"), ("min-replicas-to-write", "1")):
        redis.ask("CONFIG", "SET", *refusal)
        assert not acknowledged(service, event("lost"))
        answer = recommended(service)
        assert (answer["degraded"], answer["items"][0]["source"]) == ([], "towers")
        redis.ask("CONFIG", "SET", refusal[0], "0")
        comes_back(service, f"after {refusal[0]}")
    assert "lost" not in stored(service)


@pytest.mark.fault(23)
def test_what_somebody_else_wrote_degrades_one_user_only(start: Start, redis: RedisServer) -> None:
    service = start(store=redis.address, **SETTINGS)
    assert acknowledged(service, event("one", 7), event("two", 8))
    redis.ask("SET", "turret:user:9", "nonsense")
    for _ in range(6):
        assert recommended(service, 9)["degraded"] == ["history"]
    assert recommended(service, 7)["degraded"] == []
    assert service.client.get("/v1/users/9").status_code == 503
    assert not acknowledged(service, event("three", 7), event("four", 9))
    assert stored(service, 7) == ["one"]
    assert acknowledged(service, event("three", 7))


@pytest.mark.fault(23)
def test_a_redis_that_would_lose_events_is_said_at_the_start(start: Start, tmp_path: Path) -> None:
    with own_redis(tmp_path / "forgetful", appendonly="no") as redis:
        service = start(store=redis.address, **SETTINGS)
        assert acknowledged(service, event("one"))
        status, said = service.stop()
    assert (status, "set appendonly yes" in said) == (0, True)
