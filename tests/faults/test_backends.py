"""The store of histories is down or slow; a vector engine dies or loses a version."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import service_app
from tests.support.memory_engine import URL, Server, server, shop
from tests.support.redis_server import RedisServer, own_redis
from tests.support.service_calls import acknowledged, event, metric, recommended, stored
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.listing import point

__all__ = ["server", "shop"]  # fixtures
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
@pytest.mark.fault(23)
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
@pytest.mark.fault(23)
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


QUESTION = {"history": [3, 5, 7], "k": 10}


@pytest.fixture
def versions(shop: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`one`, which is live, and `two`: v1 on the engine that the operator names."""
    monkeypatch.setenv("TURRET_ENGINE", URL)
    for version in ("one", "two"):
        publish_to_engine(shop / "v1", URL, version=version)
    point(shop, "one")
    return shop


def test_an_engine_that_dies_is_replaced_until_it_is_back(versions: Path, server: Server) -> None:
    with service_app.serving(versions) as client:
        healthy = service_app.recommended(client, **QUESTION)
        assert healthy["degraded"] == []
        server.fault = "down"
        for _ in range(8):
            answer = service_app.recommended(client, **QUESTION)
            assert answer["degraded"] == ["engine"]
            assert {item["source"] for item in answer["items"]} == {"towers"}
        assert service_app.ids(answer) == service_app.ids(healthy)
        server.fault = None
        until(
            lambda: not service_app.recommended(client, **QUESTION)["degraded"], "the engine is asked again"
        )
        assert service_app.recommended(client, **QUESTION) == healthy


def test_a_version_that_its_engine_lost_is_not_activated(versions: Path, server: Server) -> None:
    with service_app.serving(versions) as client:
        server.items.popitem()  # that of the last version
        answer = service_app.activate(client, "two")
        assert answer.status_code == 409
        assert "holds no collection" in answer.text
        assert service_app.recommended(client, **QUESTION)["version"] == "one"


def test_a_rollback_to_a_version_that_its_engine_lost_takes_place_and_warns(
    versions: Path, server: Server
) -> None:
    """The exact search is better than the version that it leaves."""
    with service_app.serving(versions) as client:
        assert service_app.activate(client, "v1").status_code == 200
        server.fault = "lost"
        answer = client.post("/admin/rollback", json={"version": "v1"}, headers=service_app.ADMIN)
    assert (answer.status_code, answer.json()["version"]) == (200, "one")
    assert answer.json()["warning"].startswith("the exact search answers for one, which its engine ")
    assert "secret" not in answer.text
