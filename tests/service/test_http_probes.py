"""`/livez`, `/readyz` and `/metrics`, a service without a version, and the headers of every answer."""

import asyncio
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import ids, post_events, recommended, serving
from turret.service.errors import ItemsUnavailableError
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.service.stores.contract import CHANGES_PAGE, Changes, NewChange, Stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.items import SqliteItems


def test_probes_and_metrics_answer(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready", "version": "v1"}
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE turret_requests_total counter" in answer.text


@pytest.mark.parametrize("path", ["/livez", "/v1/users/7", "/nowhere", "/openapi.json", "/metrics"])
def test_an_answer_is_not_guessed_kept_framed_or_run(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "Server" not in headers


def test_without_a_version_it_is_alive_and_not_ready(tmp_path: Path) -> None:
    """It waits for its first version, and hasn't begun to look for it. What needs no version goes on."""
    waiting = serving(tmp_path / "empty", wait=True)
    for path in ("/readyz", "/v1/version", "/v1/items/101/similar"):
        answer = waiting.get(path)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert answer.json()["error"]["field"] == "bundles"
        assert answer.json()["error"]["message"].startswith("no version is live yet: ")
    assert waiting.post("/v1/recommend/batch", json={"requests": [{}]}).status_code == 503
    assert waiting.get("/livez").json() == {"status": "alive"}
    event = {"event_id": 1, "user_id": 7, "item_id": 101}
    assert post_events(waiting, event) == {"stored": 1, "duplicates": 0}
    assert waiting.get("/v1/users/7").json()["total"] == 1
    assert waiting.get("/v1/versions").json() == {"live": None, "versions": []}
    assert "turret_live_version{" not in waiting.get("/metrics").text


class Away(SqliteItems):
    """Items that can't be read while it is away."""

    is_away = True

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        if self.is_away:
            raise ItemsUnavailableError("the store is away")
        return await super().changes(since, limit)


def test_it_is_not_ready_until_it_has_read_which_items_are_withdrawn(settings: Settings) -> None:
    """Else it would recommend them after a restart. An outage later on leaves the last overlay."""
    app = create_app(settings, stores=Stores(SqliteHistory(), items := Away()))
    with TestClient(app) as client:
        assert client.portal is not None
        asyncio.run(items.change([NewChange("100", 0)]))
        refused = client.get("/readyz")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert refused.json()["error"]["field"] == "store"
        assert recommended(client)["degraded"] == ["items"]
        for items.is_away in (False, True):
            client.portal.call(app.state.components.overlay.poll)
            assert client.get("/readyz").json() == {"status": "ready", "version": "v1"}
            assert 100 not in ids(recommended(client, k=60))
