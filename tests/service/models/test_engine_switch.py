import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.models.test_activation import activator
from tests.support.memory_engine import Server, engine_in_process
from tests.support.service_app import ADMIN
from turret.service.models.model_holder import ModelHolder
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.engines.publishing import publish_to_engine
from turret.tower.format.pointer import point

URL = "redis://:secret@engine:6379"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return engine_in_process(monkeypatch)


@pytest.fixture
def shop(bundles: Path, make_contents: Callable[..., BundleContents], server: Server) -> Path:
    """v2 with an index of its own is live; `engine` is v1 on the engine, and was live before."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish_to_engine(bundles / "v1", URL, version="engine")
    point(bundles, "engine")
    holder = ModelHolder(bundles)
    assert asyncio.run(activator(holder).activate("v2")).warning is None
    return bundles


def test_a_rollback_to_a_version_that_its_engine_lost_takes_place_and_warns(
    shop: Path, server: Server, fresh_client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The fallback is better than the version that it leaves."""
    server.fault = "lost"
    answer = fresh_client.post("/admin/rollback", headers=ADMIN)
    assert answer.status_code == 200
    assert answer.json()["version"] == "engine"
    warning = answer.json()["warning"]
    assert warning.startswith("the fallback (exact) answers for engine, which its engine doesn't hold: ")
    assert "holds no collection" in warning
    assert "secret" not in warning
    assert warning in caplog.messages


def test_a_rollback_moves_the_alias_and_warns_of_nothing(shop: Path, server: Server) -> None:
    server.aliases.clear()
    assert asyncio.run(activator(ModelHolder(shop)).roll_back()).warning is None
    assert list(server.aliases.values()) == list(server.items)


def test_an_alias_that_stays_with_an_earlier_version_is_logged(
    shop: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    holder = ModelHolder(shop)
    asyncio.run(activator(holder).roll_back())
    aliases = dict(server.aliases)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "turret.activation"):
        asyncio.run(activator(holder).activate("v2"))
    assert server.aliases == aliases
    assert caplog.messages == [
        f"v2 is not on the engine at redis://engine:6379: the alias {next(iter(aliases))} goes on naming "
        "engine, the last live version there"
    ]
