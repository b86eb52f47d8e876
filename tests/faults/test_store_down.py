"""The store of histories is down or slow."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer, own_redis
from tests.support.service_calls import acknowledged, event, metric, recommended, stored
from tests.support.service_process import Process, Start
from tests.support.until import until

pytestmark = pytest.mark.fault(23)
SETTINGS = {"history_timeout": 0.4, "write_timeout": 0.4}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with own_redis(tmp_path / "redis") as server:
        yield server


def goes_on_without(service: Process, ready: int = 200) -> None:
    """Answers come without the stored history, events are refused, and soon the store isn't asked."""

    def is_open() -> bool:
        assert "history" in recommended(service)["degraded"]
        assert not acknowledged(service, event("lost"))
        return metric(service, "turret_breaker_openings_total") > 0

    until(is_open, "the circuit opens")
    given = service.client.post("/v1/recommend", json={"user_id": 7, "history": [101]}).json()
    assert "history" not in given["degraded"]
    assert given["items"][0]["source"] == "towers"
    assert service.client.get("/readyz").status_code == ready


def comes_back(service: Process, name: str) -> None:
    """By itself; what is sent again is stored once."""
    until(lambda: acknowledged(service, event(name)), "the store takes events")
    until(lambda: acknowledged(service, event(name)), "in the other worker too")
    until(lambda: recommended(service)["degraded"] == [], "and gives histories")


@pytest.mark.process
def test_a_redis_that_is_gone_and_comes_back(start: Start, redis: RedisServer) -> None:
    service = start(store=redis.address, workers=2, **SETTINGS)
    kept = [f"{number}" for number in range(20)]
    assert acknowledged(service, *map(event, kept))
    redis.kill()
    goes_on_without(service)
    redis.start()
    comes_back(service, "after")
    assert set(stored(service)) == {*kept, "after"}


@pytest.mark.nightly
def test_a_service_starts_without_its_redis(start: Start, redis: RedisServer) -> None:
    """It says so, without the password, and finds it when it is there.

    Until then it can't know the withdrawn items, and a proxy should send the requests to others.
    """
    redis.kill()
    service = start(store=redis.address.replace("redis://", "redis://default:a-secret@"), **SETTINGS)
    goes_on_without(service, ready=503)
    redis.config["requirepass"] = "a-secret"
    redis.start()
    comes_back(service, "after")
    until(lambda: service.client.get("/readyz").status_code == 200, "it is ready")
    status, said = service.stop()
    assert status == 0
    assert f"{redis.address} unavailable" in said
    assert "serving without stored histories" in said
    assert "a-secret" not in said + service.greeting
