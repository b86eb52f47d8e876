import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import with_item_tower
from turret.service.http.app import create_app
from turret.service.monitoring import observation
from turret.service.monitoring.observation import Observation
from turret.service.ranking.answer_record import AnswerRecord
from turret.service.settings import Settings
from turret.service.wire.admission import admission
from turret.tower.bundle.publish import publish
from turret.tower.engines.circuit import Circuit


def value(client: TestClient, sample: str) -> float | None:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(sample + " ")]
    return float(lines[0].split()[-1]) if lines else None


def wait_for(what: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert what()


Recommend = Callable[..., dict[str, Any]]


def test_answers_are_counted_by_what_they_came_from(fresh_client: TestClient, recommend: Recommend) -> None:
    recommend(history=[101, 102, "nobody", "none"], k=5)
    recommend(history=["nobody"])
    recommend(history=[101], exclude=list(range(100, 160)))
    recommend(history=[101], exclude=list(range(100, 150)), k=10, exclude_seen=True)
    recommend(history=[101], exclude=list(range(100, 155)), k=10)
    fresh_client.post("/v1/recommend/batch", json={"requests": [{"history": [101]}, {}]})
    assert value(fresh_client, 'turret_answers_total{source="towers"}') == 5
    assert value(fresh_client, 'turret_answers_total{source="popular"}') == 2
    assert value(fresh_client, "turret_empty_answers_total") == 1
    assert value(fresh_client, "turret_short_answers_total") == 1
    assert value(fresh_client, "turret_history_items_total") == 4 + 1 + 1 + 1 + 1 + 1
    assert value(fresh_client, "turret_unknown_items_total") == 3
    assert value(fresh_client, "turret_batch_size_sum") == 7
    assert value(fresh_client, 'turret_batch_size_bucket{le="1.0"}') == 5


def test_events_are_counted_and_so_are_those_that_came_again(fresh_client: TestClient) -> None:
    event = {"event_id": 1, "user_id": 1, "item_id": 1}
    fresh_client.post("/v1/events", json={"events": [event, event, event | {"event_id": 2}]})
    assert value(fresh_client, "turret_events_stored_total") == 2
    assert value(fresh_client, "turret_event_duplicates_total") == 1


@pytest.fixture
def watched(settings: Settings) -> Settings:
    return settings.model_copy(update={"recall_sample": 1.0, "recall_rate": 1e6, "drift_sample": 1.0})


def test_live_answers_are_searched_again_and_their_recall_exported(watched: Settings) -> None:
    with TestClient(create_app(watched)) as client:
        for k in (5, 50):
            for item in range(101, 111):
                client.post("/v1/recommend", json={"history": [item], "k": k, "exclude": [150]})
        answered = 'turret_recall_samples_total{outcome="answered"}'
        dropped = 'turret_recall_samples_total{outcome="dropped"}'
        wait_for(lambda: (value(client, answered) or 0) + (value(client, dropped) or 0) == 20)
        assert value(client, 'turret_recall_at_k{k="10"}') == 1.0  # the index of the fixture is exact
        assert value(client, 'turret_recall_at_k{k="100"}') == 1.0
        assert value(client, 'turret_recall_samples_total{outcome="failed"}') == 0


def test_live_answers_are_compared_with_the_recorded_ones(watched: Settings) -> None:
    with TestClient(create_app(watched)) as client:
        ask = {"history": [101, 102, 103], "k": 10}  # one of the recorded histories

        def compared() -> bool:
            client.post("/v1/recommend", json=ask)
            return bool(value(client, "turret_top_score_rank_count"))

        wait_for(compared)
        for _ in range(100):
            client.post("/v1/recommend", json=ask)
        drift = value(client, 'turret_drift{of="scores"}')
        noise = value(client, 'turret_drift_noise{of="scores"}')
    assert drift is not None
    assert noise is not None
    assert 0.3 < drift < 1  # always the same answer is not what was recorded
    assert 0 < noise < 0.3


def test_what_is_dropped_is_told_at_the_next_scrape(settings: Settings) -> None:
    async def run() -> None:
        observation = Observation(settings.model_copy(update={"log_queue": 1}), lambda: None)
        for _ in range(5):
            observation.logs.sink.put(None)
        text = observation.metrics.text().decode()
        assert 'turret_telemetry_dropped_total{sink="logs"} 4.0' in text
        assert 'turret_telemetry_dropped_total{sink="logs"} 4.0' in observation.metrics.text().decode()

    asyncio.run(run())


def entered(circuit: Circuit) -> object:
    token = circuit.admit()
    assert token is not None
    return token


def test_a_store_that_fails_is_told_until_it_answers_again(settings: Settings) -> None:
    clock = [0.0]

    async def run() -> None:
        observation = Observation(settings, lambda: None)
        circuit = Circuit(failures=2, seconds=1.0, clock=lambda: clock[0])
        observation.follow_circuits({"read": circuit})
        opened = observation.metrics.breaker_open.labels("read")
        for expected in (0, 1):
            circuit.fail(entered(circuit))
            assert opened.value == expected
        for moment in (2.0, 4.0):
            clock[0] = moment
            circuit.fail(entered(circuit))  # a trial
            assert opened.value == 1
        clock[0] = 6.0
        circuit.succeed(entered(circuit))
        assert opened.value == 0
        assert observation.metrics.breaker_openings.labels("read").value == 1

    asyncio.run(run())


def test_the_steps_of_the_last_hour_end_by_themselves(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(observation, "REFRESH_SECONDS", 0.01)
    with TestClient(create_app(settings)) as client:
        wait_for(lambda: len(client.get("/metrics/recent").json()["times"]) > 1)


def test_noting_costs_a_few_microseconds(settings: Settings) -> None:
    """A tenth of a millisecond would be told from a few; this is not a benchmark."""

    async def run() -> float:
        observation = Observation(settings, lambda: None)
        rows = np.arange(10)
        note = AnswerRecord("towers", 10, 10, 50, 0, np.ones(8, np.float32), rows, None, rows, np.ones(10))
        start = time.perf_counter()
        for _ in range(2000):
            observation.answered(None, [note])  # type: ignore[arg-type]
        return (time.perf_counter() - start) / 2000

    assert asyncio.run(run()) < 1e-4


def test_refusals_and_waiting_requests_are_told_once_each(settings: Settings) -> None:
    """However often the figures are brought up to date."""
    observation = Observation(settings, lambda: None)
    lanes = admission(settings.model_copy(update={"store_limit": 1, "batch_limit": 1}))
    observation.follow_requests(lanes)
    refused = observation.metrics.refused.labels
    for path, times in (("/v1/events", 3), ("/v1/recommend/batch", 2)):
        for _ in range(times):
            lanes.limiter(path).try_acquire()
    lanes.refused_connections["size"] += 4
    lanes.waiting = 5
    for _ in range(2):
        observation.metrics.refresh()
        assert (refused("overload").value, refused("size").value, refused("time").value) == (3, 4, 0)
        assert observation.metrics.queue_length.value == 5
        assert observation.metrics.under_way.labels("store").value == 1
    lanes.refused_connections["time"] += 1
    observation.metrics.refresh()
    assert (refused("overload").value, refused("size").value, refused("time").value) == (3, 4, 1)


def test_keys_and_bodies_that_are_refused_are_counted_by_reason(fresh_client: TestClient) -> None:
    fresh_client.post("/admin/activate", json={"version": "v1"})
    fresh_client.post("/v1/recommend", content=b" " * 1_000_001, headers={"Content-Type": "application/json"})
    for reason, count in (("key", 1), ("size", 1), ("scope", 0), ("rate", 0)):
        assert value(fresh_client, f'turret_refused_total{{reason="{reason}"}}') == count


def test_items_that_came_and_went_are_counted(tmp_path: Path) -> None:
    publish(tmp_path, with_item_tower(contents()))
    given = {"bundles": tmp_path, "store": "memory://", "admin_port": None, "access_log": False}
    with TestClient(create_app(Settings.model_validate(given))) as client:
        assert value(client, "turret_fresh_items") == value(client, "turret_withdrawn_items") == 0
        for item in (900, 901):
            assert client.put(f"/v1/items/{item}", json={"features": {}}).status_code == 200
        for item in (901, 101, 102):
            assert client.delete(f"/v1/items/{item}").status_code == 200
        assert value(client, "turret_fresh_items") == 1
        assert value(client, 'turret_answers_total{source="fresh"}') == 0
        client.post("/v1/recommend", json={"history": [105], "k": 100})
        assert value(client, 'turret_answers_total{source="fresh"}') == 1
        assert value(client, "turret_withdrawn_items") == 3
