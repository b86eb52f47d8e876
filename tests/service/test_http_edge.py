"""The outermost layer: request ids, counts and log lines; probes, and a service that goes on."""

import asyncio
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support import virtual_time
from tests.support.service_app import ids, post_events, recommended, sample, serving
from turret.service.errors import HistoryUnavailableError, ItemsUnavailableError
from turret.service.http.admission import Admission
from turret.service.http.app import create_app
from turret.service.http.edge import Edge, request_id
from turret.service.observing.logs import Logs
from turret.service.observing.metrics import Metrics
from turret.service.ranking.batches import latency_of, recommend
from turret.service.schemas.fields import Cursor
from turret.service.settings import Settings
from turret.service.stores.contract import CHANGES_PAGE, Changes, Event, History, NewChange, Stores
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.shared import SqliteItems


def test_a_usable_id_is_kept_and_any_other_is_replaced_by_a_new_one() -> None:
    assert [request_id(one) for one in (b"a", b"~!#", b"x" * 128)] == ["a", "~!#", "x" * 128]
    unusable = [None, b"", b"x" * 129, b"two words", b"line\nend", b"\x1b[2J", "é".encode(), b"a\x00"]
    made = {request_id(one) for one in unusable}
    assert len(made) == len(unusable)
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in made)


class Desk:
    def __init__(self, file: Any) -> None:
        self.metrics, self._file = Metrics(), file
        self.logs = Logs(form="json", descriptor=file.fileno())
        self.logs.start()

    def edge(self, app: ASGIApp) -> Edge:
        return Edge(app, self.metrics, log=self.logs.answered)

    def around(self, app: ASGIApp) -> TestClient:
        return TestClient(self.edge(app), raise_server_exceptions=False)

    def value(self, name: str) -> float:
        self.metrics.refresh()
        return sample(self.metrics.export().decode(), name)

    def lines(self) -> list[dict[str, Any]]:
        self.logs.close()
        self._file.seek(0)
        return [json.loads(line) for line in self._file]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryFile() as file:
        desk = Desk(file)
        yield desk
        desk.logs.close()


def answering(status: int = 200, **facts: Any) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in facts.items():
            setattr(scope["turret"], name, value)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("boom")


def test_a_request_is_counted_timed_and_logged(desk: Desk) -> None:
    key = SimpleNamespace(name="shop", secret="never-logged")
    app = answering(
        version="v7",
        source="towers",
        key=key,
        degraded=("history",),
        stages={"parse": 0.0002, "search": 0.003},
    )
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = {"X-Request-ID": "id-1", "Authorization": "Bearer never-logged", "traceparent": parent}
    desk.around(app).post("/v1/recommend", content="never-logged", headers=headers)
    assert desk.value('turret_requests_total{route="/v1/recommend",status="200"}') == 1
    assert desk.value('turret_request_seconds_count{class="2xx",route="/v1/recommend"}') == 1
    assert desk.value('turret_stage_seconds_sum{stage="search"}') == 0.003
    assert desk.value('turret_degraded_total{part="history"}') == 1
    (line,) = desk.lines()
    assert line.pop("seconds") > 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "message": "answered",
        "request_id": "id-1",
        "method": "POST",
        "route": "/v1/recommend",
        "status": 200,
        "source": "towers",
        "version": "v7",
        "key": "shop",
        "degraded": ["history"],
        "client": "testclient",
        "trace_id": "a" * 32,
    }


def test_what_nobody_handled_is_logged_once_and_answered_with_the_id(desk: Desk) -> None:
    answer = desk.around(failing).get("/v1/version", headers={"X-Request-ID": "id-9"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "id-9"
    assert answer.json()["error"]["message"].endswith("under request id id-9")
    assert desk.value('turret_requests_total{route="/v1/version",status="500"}') == 1
    told, answered = desk.lines()
    assert told["traceback"].endswith("ValueError: boom")
    assert (told["level"], told["request_id"]) == ("error", "id-9")
    assert (answered["level"], answered["status"]) == ("warning", 500)


@pytest.mark.parametrize("is_stopping", [False, True], ids=["deadline", "end of the service"])
def test_a_request_that_times_out_is_counted_and_logged_as_the_503_that_its_client_gets(
    desk: Desk, is_stopping: bool
) -> None:
    """Else the alert for errors wouldn't see a service whose requests all time out."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert desk.value("turret_in_flight") == 1
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def end_late() -> None:
        admission = Admission(app, Settings(), desk.metrics.count_refusal)
        headers = [(b"x-request-id", b"id-7")]
        scope = {"type": "http", "method": "GET", "path": "/v1/version", "headers": headers}
        task = asyncio.create_task(desk.edge(admission)(scope, receive, send))
        if is_stopping:
            await asyncio.sleep(1)
            task.cancel()
        await task
        assert int(asyncio.get_running_loop().time()) in ((1,) if is_stopping else (30, 31))

    virtual_time.run(end_late())
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert sent[0]["status"] == 503
    assert (answered["x-request-id"], answered["retry-after"]) == ("id-7", "1")
    assert desk.value('turret_requests_total{route="/v1/version",status="503"}') == 1
    assert desk.value('turret_refused_total{reason="time"}') == 1
    (line,) = desk.lines()
    assert (line["level"], line["status"], line["request_id"]) == ("warning", 503, "id-7")


def test_probes_are_counted_but_not_logged_while_all_is_well(desk: Desk) -> None:
    desk.around(answering()).get("/readyz")
    desk.around(answering(503)).get("/readyz")
    assert desk.value('turret_requests_total{route="/readyz",status="200"}') == 1
    assert [line["status"] for line in desk.lines()] == [503]


# ---- Probes


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
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
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
    async def append(self, events: Sequence[Event]) -> int:
        raise HistoryUnavailableError("the disk is full")

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        raise HistoryUnavailableError("the disk is gone")


def test_without_the_store_recommendations_go_on_and_no_event_is_acknowledged(settings: Settings) -> None:
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

    for module in ("batches", "recommender"):
        monkeypatch.setattr(f"turret.service.ranking.{module}.recommend", noted)
    app = create_app(settings)
    with TestClient(app) as client:
        recommended(client, history=[101], **body)
        latency_of(app.state.components.model_holder.live).seconds = 1.0
        recommended(client, history=[101], **body)
    assert threads == [is_beside, True]


async def test_a_fault_keeps_the_frames_of_its_cause_for_the_log() -> None:
    """Its line is written in another thread, after the answer; the errors of refused requests lose theirs."""
    cause, sent = KeyError("a"), list[Message]()

    async def receive() -> Message:
        raise AssertionError

    async def application(*_: Any) -> None:
        try:
            raise cause
        except KeyError as error:
            raise ValueError("b") from error

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "GET", "path": "/livez", "headers": []}
    await Edge(application, Metrics())(scope, receive, send)
    assert sent[0]["status"] == 500
    assert cause.__traceback__ is not None
