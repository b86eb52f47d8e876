"""What a worker records of its requests and answers: metrics, lines of the log, traces."""

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from prometheus_client.mmap_dict import MmapedDict
from starlette.types import Receive, Scope, Send

from tests.support.service_app import post_events, recommended, sample
from tests.support.tools import require, small_files
from tests.support.virtual_time import Clock
from turret.service.errors import ServiceError
from turret.service.http.edge import Edge
from turret.service.observing.logs import Logs, json_line, text_line
from turret.service.observing.metrics import AllocatedDict, Metrics
from turret.service.observing.observation import Observation, open_traces
from turret.service.observing.recent import MOST_SERIES, STEP_SECONDS, STEPS, Recent
from turret.service.settings import Settings
from turret.tower.engines.circuit import Circuit

# --- Metrics


def test_answers_are_counted_by_what_they_came_from(fresh_client: TestClient) -> None:
    recommended(fresh_client, history=[101, 102, "nobody", "none"])
    recommended(fresh_client, history=["nobody"])
    recommended(fresh_client, history=[101], exclude=list(range(100, 160)))
    fresh_client.post("/v1/recommend/batch", json={"requests": [{"history": [101]}, {}]})
    event = {"event_id": 1, "user_id": 1, "item_id": 1}
    post_events(fresh_client, event, event, event | {"event_id": 2})
    fresh_client.post("/admin/activate", json={"version": "v1"})
    headers = {"Content-Type": "application/json"}
    fresh_client.post("/v1/recommend", content=b" " * 1_000_001, headers=headers)
    text = fresh_client.get("/metrics").text
    expected = {
        'turret_answers_total{source="towers"}': 3,
        'turret_answers_total{source="popular"}': 2,
        "turret_empty_answers_total": 1,
        "turret_history_items_total": 4 + 1 + 1 + 1,
        "turret_unknown_items_total": 3,
        "turret_events_stored_total": 2,
        'turret_refused_total{reason="key"}': 1,
        'turret_refused_total{reason="size"}': 1,
        'turret_refused_total{reason="rate"}': 0,
    }
    assert {name: sample(text, name) for name in expected} == expected


async def test_scrapes_that_follow_each_other_leave_most_of_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, loop = Metrics(), asyncio.get_running_loop()
    seconds = iter((0.0, 2.0, 10.0, 12.0))  # before and after each export
    monkeypatch.setattr(time, "thread_time", lambda: next(seconds))
    begun = loop.time()
    await metrics.scrape()
    assert loop.time() == begun
    await metrics.scrape()
    assert loop.time() == begun + 18


async def test_the_newest_hour_is_kept_in_fixed_memory() -> None:
    """For the plots of a page that was just opened: each series at each time; None where there was none."""
    metrics = Metrics()
    for number in range(STEPS + 5):
        if number == 100:
            metrics.count_refusal("rate")  # which no plot has
            metrics.answers.labels("towers").inc(3)
            metrics.requests.labels("/v1/recommend", "200").inc()
        await metrics.remember(1000.0 + STEP_SECONDS * number)
    kept = await metrics.hour(1000.0 + STEP_SECONDS * (STEPS + 5))
    assert kept["ages"] == [STEP_SECONDS * (STEPS - number) for number in range(STEPS)]
    assert kept["series"]['turret_answers_total{source="towers"}'] == [0.0] * 95 + [3.0] * 25
    requests = kept["series"]['turret_requests_total{route="/v1/recommend",status="200"}']
    assert np.isnan(requests[:95]).all()
    assert requests[95:] == [1.0] * 25
    assert len(kept["series"]) == 2


def test_the_number_of_kept_series_is_bounded() -> None:
    recent = Recent()
    recent.add("\n".join(f'turret_drift{{of="{number}"}} 1.0' for number in range(MOST_SERIES + 9)), 0.0)
    assert len(recent.listed(1.0)["series"]) == MOST_SERIES


def test_the_kept_hour_is_json(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/metrics?history=true")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"ages", "series"}


def test_metrics_are_in_files_without_holes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A page that a full disk can't take would end the process; further values are no more exported then."""
    path = tmp_path / "counter_0.db"
    written: Any = AllocatedDict(str(path))
    for number in range(3_000):
        written.write_value(f"metric number {number:05}", number, 0.0)
    assert path.stat().st_blocks * 512 >= path.stat().st_size == 1 << 17
    read: Any = MmapedDict.read_all_values_from_file
    exported = {key: value for key, value, *_ in read(str(path))}
    assert exported == {f"metric number {number:05}": number for number in range(3_000)}
    known: Any = AllocatedDict(str(path))  # the successor of a worker continues its counters
    assert known.read_value("metric number 02999")[0] == 2_999
    with small_files(1 << 18):
        lost: Any = AllocatedDict(str(tmp_path / "full_0.db"))
        for each in (known, lost):
            for number in range(8_000):
                each.write_value(f"metric number {number:05}", number + 1, 0.0)
            assert each.read_value("metric number 07999")[0] == 8_000
    assert caplog.text.count("can't be written (File too large), so scrapes lack metrics of this worker") == 2
    gone: Any = AllocatedDict(str(tmp_path / "gone" / "full_0.db"))
    gone.write_value("metric", 1, 0.0)
    assert gone.read_value("metric")[0] == 1
    assert "can't be written (No such file or directory)" in caplog.text
    for each in (written, known, lost, gone):
        each.close()


def test_a_store_that_fails_is_told_until_it_answers_again(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    circuit = Circuit(failures=1, seconds=1.0, clock=clock)
    metrics = Observation(settings, lambda: None, {"read": circuit}).metrics

    def told(name: str) -> float | None:
        metrics.refresh()
        return metrics.registry.get_sample_value(name, {"circuit": "read"})

    for end in (circuit.fail, circuit.fail, circuit.succeed):
        token = circuit.admit()
        assert token is not None
        end(token)
        assert told("turret_breaker_open") == (end == circuit.fail)
        clock.now += 1
    assert told("turret_breaker_openings_total") == 1
    assert [record.message for record in caplog.records] == [
        "history store unavailable: read circuit open",
        "history store available again: read circuit closed",
    ]


# --- Lines of the log

Written = Callable[..., list[dict[str, Any]]]


def test_whatever_is_in_it_it_is_one_line_of_text_at_a_terminal_or_of_json() -> None:
    time = datetime(2024, 5, 1, 10, 0, 0, 500_000, UTC)
    answered = {"time": time, "level": "warning", "message": "answered", "method": "GET", "route": "/livez"}
    answered |= {"status": 200, "seconds": 0.001235, "degraded": ("history",), "client": "::1"}
    assert text_line(answered) == (
        b"2024-05-01T10:00:00.500Z warning GET /livez 200 1.23 ms degraded=history client=::1\n"
    )
    odd = {"time": time, "level": "info", "message": 'a\nb"\x1b', "logger": "x", "odd": set}
    line = json_line(odd)
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"] == 'a\nb"\x1b'
    assert b"\x1b" not in text_line(odd)


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


@pytest.fixture
def own_logger() -> Iterator[logging.Logger]:
    """A logger whose handlers on the root are removed afterwards."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield logging.getLogger("turret.own")
    root.handlers[:] = before


def messages(content: bytes) -> list[str]:
    return [json.loads(line)["message"] for line in content.splitlines()]


@pytest.mark.fault(32)
def test_a_full_queue_makes_nobody_wait_and_what_it_loses_is_counted(
    own_logger: logging.Logger, pipe: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe takes 64 kB; after that, writing to it blocks for ever."""
    monkeypatch.setattr("turret.service.observing.logs.QUEUED", 100)
    dropped: list[int] = []
    logs = Logs(form="json", descriptor=pipe[1], drop=dropped.append)
    logs.start()
    own_logger.error("x" * 1_000_000)
    os.read(pipe[0], 1)  # the thread has it, and none of the next
    for number in range(1000):
        own_logger.error("%d", number)
    assert sum(dropped) == 900
    logs.close(seconds=0.0)
    with open(os.dup(pipe[0]), "rb") as told:
        told.readline()
        assert messages(b"".join(told.readline() for _ in range(100))) == [*map(str, range(100))]


@pytest.fixture
def written() -> Written:
    """Run something while a log is open; gives its lines."""

    def run(act: Callable[[Logs], object], **options: Any) -> list[dict[str, Any]]:
        with tempfile.TemporaryFile() as file:
            logs = Logs(descriptor=file.fileno(), **options)
            logs.start()
            act(logs)
            logs.close(60)
            file.seek(0)
            return [json.loads(line) for line in file]

    return run


@pytest.mark.parametrize(
    ("options", "statuses", "said"),
    [({}, [200, 404, 500], 2), ({"level": "debug"}, [200, 404, 500], 3), ({"level": "warning"}, [500], 1)],
)
def test_answers_and_messages_are_logged_by_the_settings(
    written: Written, options: dict[str, Any], statuses: list[int], said: int
) -> None:
    def act(logs: Logs) -> None:
        for status in (200, 404, 500):
            logs.answered(logging.WARNING if status >= 500 else logging.INFO, {"status": status})
        for level in (logging.DEBUG, logging.INFO, logging.ERROR):
            logging.getLogger("turret.x").log(level, "so")

    lines = written(act, **options)
    assert [line["status"] for line in lines if "status" in line] == statuses
    assert sum(line["message"] == "so" for line in lines) == said


def test_neither_a_message_nor_a_traceback_has_a_password(written: Written) -> None:
    def act(_: Logs) -> None:
        try:
            raise OSError("no answer of http://me:secret@collector:4318")
        except OSError:
            logging.getLogger("x").exception("can't send to %s", "http://me:secret@collector:4318")

    (line,) = written(act)
    assert line["message"] == "can't send to http://collector:4318"
    assert line["traceback"].endswith("no answer of http://collector:4318")


def test_a_log_without_a_thread_writes_later_what_would_block(
    own_logger: logging.Logger, pipe: list[int]
) -> None:
    readable, writable = pipe
    dropped: list[int] = []
    Logs("info", "json", writable, dropped.append).start(has_thread=False)
    os.set_blocking(writable, False)
    filled = os.write(writable, b"x" * 10_000_000)
    os.set_blocking(writable, True)
    own_logger.error("nobody reads")
    while filled:
        filled -= len(os.read(readable, filled))
    own_logger.error("back")
    assert messages(os.read(readable, 9999)) == ["nobody reads", "back"]
    os.close(readable)
    pipe[0] = -1
    own_logger.error("nobody is there")
    assert dropped == [1]


# --- Traces

TRACE, CALLER = "a" * 32, "b" * 16


def test_traces_are_made_where_there_is_a_collector_and_need_their_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "turret.service.observing.traces", None)  # as without OpenTelemetry
    assert open_traces(1.0) is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    refusal = r"^OTEL_EXPORTER_OTLP_ENDPOINT is set, but .* pip install .*\[otel\]', or unset it$"
    with pytest.raises(ServiceError, match=refusal):
        open_traces(1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENDPOINT", "me:secret@collector:4318"), ("HEADERS", "a=b,authorization: secret")],
)
def test_a_faulty_address_of_a_collector_is_refused_without_its_secret(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenTelemetry would send nothing, and log the header."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    with pytest.raises(ServiceError, match=r"; (give a URL|write NAME=)") as caught:
        open_traces(1.0)
    assert "secret" not in str(caught.value)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as the query says, like the layers within telemetry."""
    scope["turret"].version = "v1"
    scope["turret"].stages = {"parse": 0.001, "search": 0.002}
    status = int(scope["query_string"] or b"200")
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def traced(share: float, path: str = "/v1/recommend", **headers: str) -> Sequence[Any]:
    require("otel")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from turret.service.observing.traces import Traces

    exporter = InMemorySpanExporter()
    traces = Traces(share, exporter)
    client = TestClient(Edge(answer, Metrics(), trace=traces.record))
    client.post(path, headers={"X-Request-ID": "id-1", **headers})
    traces.close()
    return exporter.get_finished_spans()


def test_a_request_is_a_span_with_its_stages_and_without_its_path() -> None:
    """Which may name users. Probes have none."""
    parse, search, request = traced(1.0)
    assert (request.name, request.kind.name) == ("POST /v1/recommend", "SERVER")
    expected = {"http.response.status_code": 200, "turret.request_id": "id-1", "turret.version": "v1"}
    assert dict(request.attributes).items() >= expected.items()
    assert request.status.status_code.name == "UNSET"
    assert [one.name for one in (parse, search)] == ["parse", "search"]
    assert {one.parent.span_id for one in (parse, search)} == {request.context.span_id}
    assert search.start_time == parse.end_time
    assert search.end_time - search.start_time == 2_000_000
    assert request.resource.attributes["service.name"] == "turret"
    *_, failed = traced(1.0, "/v1/users/ann?503")
    assert failed.status.status_code.name == "ERROR"
    assert "ann" not in failed.to_json()
    assert traced(1.0, "/readyz") == ()


def test_a_span_joins_the_trace_of_its_caller_who_decides_on_it() -> None:
    """A wrong header begins a trace."""
    *_, request = traced(0.0, traceparent=f"00-{TRACE}-{CALLER}-01")
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == CALLER
    assert traced(1.0, traceparent=f"00-{TRACE}-{CALLER}-00") == ()
    *_, request = traced(1.0, traceparent="nonsense")
    assert request.parent is None
