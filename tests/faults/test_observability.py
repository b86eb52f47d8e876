"""Figures of several workers, and what watches the service being slow, stuck or gone."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service_process import Process, Start

ASKED = {"history": [101, 102], "k": 5}


@pytest.fixture
def start(bundles: Path) -> Iterator[Start]:
    started: list[Process] = []

    def begin(**settings: Any) -> Process:
        started.append(Process(bundles, **settings))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def fresh(service: Process, method: str, path: str, **given: Any) -> httpx2.Response:
    """Ask over a connection of its own, so that any worker may answer."""
    return httpx2.request(method, service.urls[0] + path, timeout=10, trust_env=False, **given)


def figures(service: Process) -> dict[tuple[str, str], float]:
    """Every sample of one scrape: (name, labels) -> value."""
    text = fresh(service, "GET", "/metrics").text
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def only(found: dict[tuple[str, str], float], name: str, **labels: str) -> float:
    return found.get((name, json.dumps(labels, sort_keys=True)), 0.0)


def wait_for(what: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert what()


def workers(service: Process) -> set[int]:
    return {
        int(json.loads(labels)["process"])
        for name, labels in figures(service)
        if name == "turret_worker_generation"
    }


def is_replaced(service: Process, victim: int) -> bool:
    """Whether another of two workers has taken the place of one."""
    found = workers(service)
    return len(found) == 2 and victim not in found


@pytest.mark.nightly
@pytest.mark.fault(31)
def test_a_scrape_of_any_worker_tells_of_all_and_nothing_goes_back_when_one_is_killed(start: Start) -> None:
    service = start(workers=2)
    for _ in range(40):
        assert fresh(service, "POST", "/v1/recommend", json=ASKED).status_code == 200
    before = figures(service)
    answered = {"route": "/v1/recommend", "status": "200"}
    assert [only(figures(service), "turret_requests_total", **answered) for _ in range(10)] == [40.0] * 10
    assert only(before, "turret_answers_total", source="towers") == 40
    assert only(before, "turret_workers") == 2
    assert only(before, "turret_workers_serving", version="v1") == 2
    for victim in workers(service):  # each of the two in turn
        os.kill(victim, signal.SIGKILL)
        wait_for(partial(is_replaced, service, victim))
        after = figures(service)
        fallen = [
            (key, before[key], after.get(key))
            for key in before
            if key[0].endswith(("_total", "_bucket", "_count", "_sum")) and after.get(key, 0.0) < before[key]
        ]
        assert not fallen
        assert only(after, "turret_requests_total", **answered) == 40
        before = after
    assert only(before, "turret_worker_starts_total") == 4
    assert only(before, "turret_in_flight") == 1  # the scrape itself


def answers_quickly(service: Process, count: int, request_id: str = "mine") -> None:
    """Every one of these requests is answered, and none of them waits for anybody."""
    slowest = 0.0
    for _ in range(count):
        start = time.perf_counter()
        answer = service.client.post("/v1/recommend", json=ASKED, headers={"X-Request-ID": request_id})
        slowest = max(slowest, time.perf_counter() - start)
        assert answer.status_code == 200
        assert answer.headers["x-request-id"] == request_id
    assert slowest < 2


@pytest.mark.nightly
@pytest.mark.fault(32)
def test_a_log_that_nobody_reads_is_dropped_and_counted_and_told_when_somebody_does(start: Start) -> None:
    """The pipe takes 64 kB. Not even the supervisor waits: a worker that is killed is replaced."""
    service = start(access_log=True, log_queue=100, workers=2)
    answers_quickly(service, 900)
    (victim, _) = workers(service)
    os.kill(victim, signal.SIGKILL)
    wait_for(partial(is_replaced, service, victim))
    answers_quickly(service, 600)
    wait_for(lambda: only(figures(service), "turret_telemetry_dropped_total", sink="logs") > 100)
    assert service.process.stderr is not None
    seen = ""
    while "log lines were dropped" not in seen:  # somebody reads again
        answers_quickly(service, 1)
        seen += service.process.stderr.readline()
    lines = [json.loads(line) for line in seen.splitlines()]
    told = next(line for line in lines if "dropped" in line)
    assert (told["level"], told["dropped"] > 0) == ("warning", True)
    recommendations = [line for line in lines if line.get("route") == "/v1/recommend"]
    assert {line["request_id"] for line in recommendations} == {"mine"}
    status, _ = service.stop()
    assert status == 0


@pytest.mark.fault(32)
def test_a_log_whose_reader_is_gone_costs_lines_and_nothing_else(start: Start) -> None:
    service = start(access_log=True)
    assert service.process.stderr is not None
    service.process.stderr.close()
    answers_quickly(service, 50)
    wait_for(lambda: only(figures(service), "turret_telemetry_dropped_total", sink="logs") >= 50)
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(20) == 0


@pytest.mark.nightly
@pytest.mark.fault(32)
@pytest.mark.parametrize("collector", ["silent", "gone"])
def test_a_collector_of_traces_that_is_silent_or_gone_makes_no_request_wait(
    start: Start, collector: str
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel isn't installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        port = silent.getsockname()[1]
        if collector == "gone":
            silent.close()
        named = f"import os; os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = 'http://127.0.0.1:{port}'\n"
        quick = "os.environ |= {'OTEL_EXPORTER_OTLP_TIMEOUT': '1', 'OTEL_BSP_SCHEDULE_DELAY': '200'}\n"
        service = start(before=named + quick, trace_share=1.0)
        answers_quickly(service, 300)
        wait_for(lambda: only(figures(service), "turret_telemetry_dropped_total", sink="traces") > 0, 30)
        begun = time.monotonic()
        status, _ = service.stop()
        assert status == 0
        assert time.monotonic() - begun < 15


@pytest.mark.fault(32)
def test_whoever_asks_for_figures_and_does_not_read_them_holds_nobody_up(start: Start) -> None:
    service = start(drain_seconds=1)
    port = int(service.urls[0].rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as scraper:
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        answers_quickly(service, 50)
        assert service.stop()[0] == 0
