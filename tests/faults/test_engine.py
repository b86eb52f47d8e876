"""A version on a vector engine behind the service: an engine that dies, and switches of versions."""

from pathlib import Path

import pytest

from tests.support.memory_engine import URL, Server, server, shop
from tests.support.service_app import ADMIN, activate, ids, recommended, serving
from tests.support.until import until
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.index_settings import EngineSettings
from turret.tower.format.listing import point
from turret.tower.format.manifest import read_manifest

__all__ = ["server", "shop"]  # fixtures
QUESTION = {"history": [3, 5, 7], "k": 10}


@pytest.fixture
def versions(shop: Path, server: Server) -> Path:
    """`one`, which is live, and `two`: v1 on the engine."""
    for version in ("one", "two"):
        publish_to_engine(shop / "v1", URL, version=version)
    point(shop, "one")
    return shop


def settings_of(root: Path, version: str) -> EngineSettings:
    settings = read_manifest(root / version).index
    assert isinstance(settings, EngineSettings)
    return settings


def test_an_engine_that_dies_is_replaced_until_it_is_back(versions: Path, server: Server) -> None:
    with serving(versions) as client:
        healthy = recommended(client, **QUESTION)
        assert healthy["degraded"] == []
        server.fault = "down"
        for _ in range(8):
            answer = recommended(client, **QUESTION)
            assert answer["degraded"] == ["engine"]
            assert {item["source"] for item in answer["items"]} == {"towers"}
        assert ids(answer) == ids(healthy)
        server.fault = None
        until(lambda: not recommended(client, **QUESTION)["degraded"], "the engine is asked again")
        assert recommended(client, **QUESTION) == healthy


def test_a_version_that_its_engine_lost_is_not_activated(versions: Path, server: Server) -> None:
    two = settings_of(versions, "two")
    with serving(versions) as client:
        del server.items[two.collection]
        answer = activate(client, "two")
        assert answer.status_code == 409
        assert "holds no collection" in answer.text
        assert recommended(client, **QUESTION)["version"] == "one"


def test_a_rollback_to_a_version_that_its_engine_lost_takes_place_and_warns(
    versions: Path, server: Server
) -> None:
    """The exact search is better than the version that it leaves."""
    with serving(versions) as client:
        assert activate(client, "v1").status_code == 200
        server.fault = "lost"
        answer = client.post("/admin/rollback", headers=ADMIN)
    assert (answer.status_code, answer.json()["version"]) == (200, "one")
    assert answer.json()["warning"].startswith("the exact search answers for one, which its engine ")
    assert "secret" not in answer.text
