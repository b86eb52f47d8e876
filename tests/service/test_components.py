"""A service that goes on: without its store, beside long answers, and with the answers of who gave up."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.members import route_in
from tests.support.service_app import recommended
from tests.support.until import until
from turret.service.errors import HistoryUnavailableError
from turret.service.http.app import create_app
from turret.service.ranking.answers import recommend
from turret.service.schemas.fields import Cursor
from turret.service.settings import Settings
from turret.service.stores.contract import Event, History, Stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.items import SqliteItems
from turret.service.versions.record import Route, Routes

EVENT = {"event_id": 1, "user_id": 7, "item_id": 101}


def test_changes_beside_a_version_are_read_before_the_first_request(settings: Settings) -> None:
    route_in(settings.bundles, Routes(canary=Route(version="v1", share=0.5)))
    app = create_app(settings)
    with TestClient(app):
        live = app.state.components.model_holder.live.bundle
        until(lambda: app.state.components.overlay.current(live) is not None, "the changes are read")


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
        ({"history": [101]}, False),
        ({"history": [101], "filter": {"title": {"equals": "Item 103"}}}, False),
        ({"history": [101], "k": 200}, True),
        ({"history": [101], "explain": True}, True),
        ({"history": [101], "cap": {"title": 1}}, True),
        ({"history": [101], "cursor": Cursor("v1", 0, 10**6, 0.0, 0).text()}, True),
    ],
)
def test_long_answers_are_ranked_beside_the_event_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], is_beside: bool
) -> None:
    """All answers of a version that takes long, until one is short again."""
    threads: list[str] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return recommend(*given)

    for module in ("turret.service.ranking.recommender", "turret.service.ranking.micro_batcher"):
        monkeypatch.setattr(f"{module}.recommend", noted)
    app = create_app(settings)
    with TestClient(app) as client:
        recommended(client, **body)
        assert threads[0].startswith("ranking") == is_beside
        latency = app.state.components.model_holder.live.latency
        latency.seconds = 1.0
        recommended(client, **body)
        assert threads[1].startswith("ranking")
        assert is_beside or latency.seconds < 1.0
