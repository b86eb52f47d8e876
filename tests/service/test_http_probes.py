"""`/livez`, `/readyz` and `/metrics`, the headers of every answer, and a service that goes on."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import ids, post_events, recommended, serving
from turret.service.errors import HistoryUnavailableError, ItemsUnavailableError
from turret.service.http.app import create_app
from turret.service.ranking.answers import recommend
from turret.service.schemas.fields import Cursor
from turret.service.settings import Settings
from turret.service.stores.contract import CHANGES_PAGE, Changes, Event, History, NewChange, Stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.shared import SqliteItems


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


# ---- A service goes on without its store, and beside long answers


EVENT = {"event_id": 1, "user_id": 7, "item_id": 101}


class Lost(SqliteHistory):
    """A store that never answers a read, and can't write."""

    async def append(self, events: Sequence[Event]) -> int:
        raise HistoryUnavailableError("the disk is full")

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        await asyncio.Event().wait()
        return {}


def test_without_the_store_recommendations_go_on_and_no_event_is_acknowledged(settings: Settings) -> None:
    settings = settings.model_copy(update={"history_timeout": 0.05})
    with TestClient(create_app(settings, stores=Stores(Lost(), SqliteItems()))) as client:
        requests: list[dict[str, Any]] = [{"user_id": 7}, {"user_id": 7, "history": [101]}, {}]
        results = client.post("/v1/recommend/batch", json={"requests": requests}).json()["results"]
        assert [one["degraded"] for one in results] == [["history"], [], []]
        assert [one["items"][0]["source"] for one in results] == ["popular", "towers", "popular"]
        answer = client.post("/v1/events", json={"events": [EVENT]})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["field"] == "store"
        assert "turret_events_stored_total 0.0" in client.get("/metrics").text


# ---- Long answers


@pytest.mark.parametrize(
    ("body", "is_beside"),
    [
        ({}, False),
        ({"filter": {"title": {"equals": "Item 103"}}}, False),
        ({"k": 200}, True),
        ({"explain": True}, True),
        ({"cap": {"title": 1}}, True),
        ({"cursor": Cursor("v1", 0, 10**6, 0.0, 0).text()}, True),
    ],
)
def test_long_answers_are_ranked_beside_the_event_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], is_beside: bool
) -> None:
    """So are all answers of a version that takes long."""
    threads: list[bool] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name.startswith("ranking"))
        return recommend(*given)

    monkeypatch.setattr("turret.service.ranking.recommender.recommend", noted)
    app = create_app(settings)
    with TestClient(app) as client:
        recommended(client, history=[101], **body)
        app.state.components.model_holder.live.latency.seconds = 1.0
        recommended(client, history=[101], **body)
    assert threads == [is_beside, True]
