"""The outermost layer: request ids, and what it counts and logs of every request."""

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support import virtual_time
from tests.support.service_app import sample
from turret.service.http.admission import Admission
from turret.service.http.edge import Edge, request_id
from turret.service.observing.logs import Logs
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings


def test_a_usable_id_is_kept_and_any_other_is_replaced_by_a_new_one() -> None:
    assert [request_id(one) for one in (b"a", b"~!#", b"x" * 128)] == ["a", "~!#", "x" * 128]
    unusable = [None, b"", b"x" * 129, b"two words", b"line\nend", b"\x1b[2J", "é".encode(), b"a\x00"]
    made = {request_id(one) for one in unusable}
    assert len(made) == len(unusable)
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in made)


class Desk:
    """An application of a few lines behind telemetry, with all that this notes."""

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
        scope["turret"].update(facts)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("boom")


def test_a_request_is_counted_timed_and_logged(desk: Desk) -> None:
    key = SimpleNamespace(name="shop", secret="never-logged")
    app = answering(version="v7", key=key, degraded=("history",), stages={"parse": 0.0002, "search": 0.003})
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
