import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from turret.service.errors import HistoryUnavailableError, ItemsUnavailableError
from turret.service.http.app import create_app
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.service.ranking.answers import recommend
from turret.service.schemas.cursor import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.contract import Changes, Event, History, Stores
from turret.service.stores.memory import MemoryHistory, MemoryItems


class Broken(MemoryHistory):
    """A store that can do nothing."""

    async def append(self, events: Sequence[Event]) -> int:
        raise HistoryUnavailableError("the disk is full")

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        raise HistoryUnavailableError("the disk is full")

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        raise HistoryUnavailableError("the disk is full")

    async def random_user(self) -> str | None:
        raise HistoryUnavailableError("the disk is full")

    async def forget(self, user: str) -> int:
        raise HistoryUnavailableError("the disk is full")


class Stuck(MemoryHistory):
    """A store that never answers."""

    async def append(self, events: Sequence[Event]) -> int:
        await asyncio.sleep(60)
        return 0

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        await asyncio.sleep(60)
        return {}


def with_store(settings: Settings, store: MemoryHistory) -> FastAPI:
    settings = settings.model_copy(update={"history_timeout": 0.05, "write_timeout": 0.05})
    return create_app(settings, stores=Stores(store, MemoryItems()))


@pytest.mark.parametrize("store", [Broken(), Stuck()], ids=["broken", "stuck"])
def test_recommendations_go_on_without_the_store(settings: Settings, store: MemoryHistory) -> None:
    with TestClient(with_store(settings, store)) as client:
        requests: list[dict[str, Any]] = [{"user_id": 7}, {"user_id": 7, "history": [101]}, {}]
        answer = client.post("/v1/recommend/batch", json={"requests": requests})
        assert [one["degraded"] for one in answer.json()["results"]] == [["history"], [], []]
        assert [one["items"][0]["source"] for one in answer.json()["results"]] == [
            "popular",
            "towers",
            "popular",
        ]


@pytest.mark.parametrize("store", [Broken(), Stuck()], ids=["broken", "stuck"])
def test_an_event_that_is_not_stored_is_not_acknowledged(settings: Settings, store: MemoryHistory) -> None:
    with TestClient(with_store(settings, store)) as client:
        event = {"event_id": 1, "user_id": 7, "item_id": 101}
        answer = client.post("/v1/events", json={"events": [event]})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["field"] == "store"
        assert "turret_events_stored_total 0.0" in client.get("/metrics").text


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_users_can_not_be_shown_or_forgotten_without_the_store(settings: Settings, method: str) -> None:
    with TestClient(with_store(settings, Broken())) as client:
        assert client.request(method, "/v1/users/7").status_code == 503


def test_a_store_that_goes_on_failing_is_not_waited_for(settings: Settings) -> None:
    """After a few that waited, until the breaker lets one call through again; the answer says how long."""
    settings = settings.model_copy(update={"breaker_failures": 2, "breaker_seconds": 60.0})
    with TestClient(with_store(settings, Stuck())) as client:
        event = {"event_id": 1, "user_id": 7, "item_id": 101}
        for _ in range(2):
            assert client.post("/v1/events", json={"events": [event]}).status_code == 503
            assert client.post("/v1/recommend", json={"user_id": 7}).json()["degraded"] == ["history"]
        store = client.app.state.components.histories  # type: ignore[attr-defined]
        assert {name: circuit.state for name, circuit in store.circuits.items()} == {
            "read": "open",
            "write": "open",
        }
        answer = client.post("/v1/events", json={"events": [event]})
        assert (answer.status_code, 50 <= int(answer.headers["retry-after"]) <= 60) == (503, True)
        assert client.post("/v1/recommend", json={"user_id": 7}).json()["degraded"] == ["history"]
        assert [circuit.refused for circuit in store.circuits.values()] == [1, 1]


def test_only_the_newest_stored_events_are_read(settings: Settings) -> None:
    app = create_app(settings.model_copy(update={"stored_history_limit": 2}))
    with TestClient(app) as client:
        events = [{"event_id": n, "user_id": 7, "item_id": 101 + n, "time": n} for n in range(3)]
        client.post("/v1/events", json={"events": events})
        stored = client.post("/v1/recommend", json={"user_id": 7}).json()["items"]
        assert stored == client.post("/v1/recommend", json={"history": [102, 103]}).json()["items"]


class ItemsAway(MemoryItems):
    """A store of items that can't be read."""

    async def changes(self, since: int) -> Changes:
        raise ItemsUnavailableError("it is away")


def test_an_answer_says_that_changes_of_items_may_be_missing(settings: Settings) -> None:
    app = create_app(settings)
    with TestClient(app) as client:
        assert client.post("/v1/recommend", json={"history": [101]}).json()["degraded"] == []
        app.state.components.overlay._store = ItemsAway()
        app.state.components.overlay._generation.bump()
        assert client.post("/v1/recommend", json={"history": [101]}).json()["degraded"] == ["items"]
        requests = {"requests": [{"history": [101]}, {}]}
        results = client.post("/v1/recommend/batch", json=requests).json()["results"]
        assert [one["degraded"] for one in results] == [["items"], ["items"]]
        assert 'turret_degraded_total{part="items"} 2.0' in client.get("/metrics").text


def test_what_is_beside_a_version_is_read_before_the_first_request(settings: Settings) -> None:
    write_routes(settings.bundles, Routes(canary=Route(version="v1", share=0.5)))
    app = create_app(settings)
    with TestClient(app):
        components, end = app.state.components, time.monotonic() + 10
        while components.overlay.current(components.model_holder.live.bundle) is None:
            assert time.monotonic() < end
            time.sleep(0.01)


def deep() -> str:
    """A cursor far down, as anybody may write one."""
    return Cursor("v1", 0, 10**6, 0.0, 0).text()


@pytest.mark.parametrize(
    ("body", "is_beside"),
    [
        ({"history": [101]}, False),
        ({"history": [101], "filter": {"title": {"equals": "Item 103"}}}, False),
        ({"history": [101], "k": 200}, True),
        ({"history": [101], "explain": True}, True),
        ({"history": [101], "cap": {"title": 1}}, True),
        ({"history": [101], "cursor": deep()}, True),
    ],
)
def test_what_takes_long_is_ranked_beside_the_event_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], is_beside: bool
) -> None:
    threads: list[str] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return recommend(*given)

    for module in ("turret.service.ranking.recommender", "turret.service.ranking.micro_batcher"):
        monkeypatch.setattr(f"{module}.recommend", noted)
    app = create_app(settings)
    with TestClient(app) as client:
        assert client.post("/v1/recommend", json=body).status_code == 200
        assert threads[0].startswith("ranking") == is_beside
        app.state.components.model_holder.live.latency.seconds = 1.0
        client.post("/v1/recommend", json=body)
        assert threads[1].startswith("ranking")
        if not is_beside:
            assert app.state.components.model_holder.live.latency.seconds < 1.0


def test_what_is_noted_of_who_gave_up_does_not_change_while_a_thread_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer that notes it walks through the stages; another one among them would end that in a fault."""
    begun, may_end = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        may_end.wait(10)
        return recommend(*given)

    monkeypatch.setattr("turret.service.ranking.recommender.recommend", slow)
    components = create_app(settings).state.components
    facts: dict[str, Any] = {}

    async def give_up() -> None:
        request = RecommendRequest(history=[101], explain=True)
        asking = asyncio.create_task(components.recommender.recommend_one(request, facts))
        await asyncio.to_thread(begun.wait, 10)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        may_end.set()
        await components.close()

    asyncio.run(give_up())
    assert list(facts["stages"]) == ["history"]
