import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turret.service.monitoring.middleware import Telemetry
from turret.service.telemetry.logs import Logs
from turret.service.telemetry.metrics import Metrics
from turret.service.telemetry.spans import Spans

Lines = Callable[[], list[dict[str, Any]]]


class Traces:
    """Keeps what it is offered."""

    def __init__(self) -> None:
        self.offered: list[Spans] = []

    def start(self) -> None: ...
    def close(self) -> None: ...
    def take_dropped(self) -> int:
        return 0

    def offer(self, spans: Spans) -> None:
        self.offered.append(spans)


class Desk:
    """An application of a few lines behind telemetry, with all that this notes."""

    def __init__(self, descriptor: int) -> None:
        self.metrics, self.traces = Metrics(), Traces()
        self.logs = Logs(form="json", descriptor=descriptor)
        self.logs.start()

    def around(self, app: ASGIApp) -> TestClient:
        telemetry = Telemetry(app, self.metrics, self.logs, self.traces)
        return TestClient(telemetry, raise_server_exceptions=False)

    def value(self, sample: str) -> float:
        lines = [one for one in self.metrics.text().decode().splitlines() if one.startswith(sample + " ")]
        return float(lines[0].split()[-1]) if lines else 0.0


@pytest.fixture
def file() -> Iterator[Any]:
    with tempfile.TemporaryFile() as file:
        yield file


@pytest.fixture
def desk(file: Any) -> Iterator[Desk]:
    desk = Desk(file.fileno())
    yield desk
    desk.logs.close()


@pytest.fixture
def lines(desk: Desk, file: Any) -> Lines:
    def read() -> list[dict[str, Any]]:
        desk.logs.close()
        file.seek(0)
        return [json.loads(line) for line in file]

    return read


def answering(status: int = 200, **facts: Any) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["turret"].update(facts)
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("boom")


def test_an_id_that_is_sent_comes_back(desk: Desk) -> None:
    answer = desk.around(answering()).get("/livez", headers={"X-Request-ID": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["x-own"] == "1"


def test_without_a_usable_id_there_is_a_new_one(desk: Desk) -> None:
    client = desk.around(answering())
    given = [client.get("/livez", headers={"X-Request-ID": "two words"}) for _ in range(2)]
    first, second = (answer.headers["x-request-id"] for answer in given)
    assert first != second
    assert " " not in first


def test_the_headers_of_an_answer_that_is_used_again_stay_as_they_are(desk: Desk) -> None:
    headers = [(b"content-type", b"text/plain")]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    desk.around(app).get("/")
    assert headers == [(b"content-type", b"text/plain")]


def test_a_request_is_counted_timed_and_logged(desk: Desk, lines: Lines) -> None:
    class Key:
        name = "shop"
        secret = "never-logged"

    stages = {"parse": 0.0002, "search": 0.003}
    app = answering(version="v7", key=Key(), degraded=("history",), stages=stages)
    headers = {"X-Request-ID": "id-1", "Authorization": "Bearer never-logged"}
    desk.around(app).post("/v1/recommend", content="never-logged", headers=headers)
    assert desk.value('turret_requests_total{route="/v1/recommend",status="200"}') == 1
    assert desk.value('turret_request_seconds_count{class="2xx",route="/v1/recommend"}') == 1
    assert desk.value('turret_stage_seconds_bucket{le="0.0002",stage="parse"}') == 1
    assert desk.value('turret_stage_seconds_sum{stage="search"}') == 0.003
    assert desk.value('turret_degraded_total{part="history"}') == 1
    (line,) = lines()
    assert 0 < line.pop("seconds") < 5
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "message": "answered",
        "request_id": "id-1",
        "method": "POST",
        "route": "/v1/recommend",
        "status": 200,
        "version": "v7",
        "key": "shop",
        "degraded": ["history"],
        "client": "testclient",
    }
    assert "never-logged" not in str(desk.traces.offered)


def test_a_path_is_counted_by_the_route_that_has_matched_it(desk: Desk) -> None:
    async def users(_: Request) -> Response:
        return Response()

    routed = Router([Route("/v1/users/{user_id:int}", users)])
    desk.around(routed).get("/v1/users/7")
    desk.around(answering(404)).get("/v1/users/7/what")
    assert desk.value('turret_requests_total{route="/v1/users/{user_id:path}",status="200"}') == 1
    assert desk.value('turret_requests_total{route="unknown",status="404"}') == 1


def test_what_nobody_handled_is_logged_once_and_answered_with_the_id(desk: Desk, lines: Lines) -> None:
    answer = desk.around(failing).get("/v1/version", headers={"X-Request-ID": "id-9"})
    assert answer.status_code == 500
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"] == "id-9"
    assert answer.json()["error"]["message"].endswith("under request id id-9")
    assert desk.value('turret_requests_total{route="/v1/version",status="500"}') == 1
    told, answered = lines()
    assert told["traceback"].endswith("ValueError: boom")
    assert (told["level"], told["request_id"]) == ("error", "id-9")
    assert (answered["level"], answered["status"]) == ("warning", 500)


def test_a_failure_in_the_middle_of_an_answer_counts_as_one(desk: Desk) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("boom")

    desk.around(app).get("/v1/version")
    assert desk.value('turret_requests_total{route="/v1/version",status="500"}') == 1


def test_what_is_given_up_before_an_answer_is_counted_as_such(desk: Desk) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert desk.metrics.in_flight.value == 1
        await asyncio.sleep(60)

    async def give_up() -> None:
        telemetry = Telemetry(app, desk.metrics, desk.logs)
        scope = {"type": "http", "method": "GET", "path": "/v1/version", "headers": []}

        async def nothing(*_: Message) -> Any: ...

        async with asyncio.timeout(0.05):
            await telemetry(scope, nothing, nothing)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    assert desk.value('turret_requests_total{route="/v1/version",status="499"}') == 1
    assert desk.metrics.in_flight.value == 0


def test_probes_are_counted_but_not_logged_while_all_is_well(desk: Desk, lines: Lines) -> None:
    desk.around(answering()).get("/readyz")
    desk.around(answering(503)).get("/readyz")
    assert desk.value('turret_requests_total{route="/readyz",status="200"}') == 1
    assert [line["status"] for line in lines()] == [503]
    assert [one.status for one in desk.traces.offered] == [503]


def test_what_is_traced_has_its_stages_and_its_caller(desk: Desk, lines: Lines) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    app = answering(stages={"parse": 0.1})
    desk.around(app).post("/v1/recommend", headers={"traceparent": parent})
    (spans,) = desk.traces.offered
    assert (spans.method, spans.route, spans.status, spans.stages) == (
        "POST",
        "/v1/recommend",
        200,
        (("parse", 0.1),),
    )
    assert spans.parent == parent.encode()
    (line,) = lines()
    assert line["trace_id"] == "a" * 32


def test_every_call_of_the_service_has_an_id_on_its_answer(fresh_client: TestClient) -> None:
    calls = [
        fresh_client.get("/livez"),
        fresh_client.get("/nowhere"),
        fresh_client.put("/v1/recommend"),
        fresh_client.post("/v1/recommend", content="{"),
        fresh_client.post("/admin/activate", json={}),
        fresh_client.get("/metrics"),
    ]
    assert [call.status_code for call in calls] == [200, 404, 405, 400, 401, 200]
    assert len({call.headers["x-request-id"] for call in calls}) == len(calls)
