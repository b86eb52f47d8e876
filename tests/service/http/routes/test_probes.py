from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.service_calls import damage
from turret.service.http.app import create_app
from turret.service.models.activation_log import ActivationLog
from turret.service.models.activation_state import commit, new_record
from turret.service.monitoring.observation import Observation
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.worker_context import WorkerContext
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.pointer import current
from turret.tower.format.snapshot import take_snapshot


def test_probes_answer(fresh_client: TestClient) -> None:
    assert fresh_client.get("/livez").json() == {"status": "alive"}
    assert fresh_client.get("/readyz").json() == {"status": "ready", "version": "v1"}


def test_metrics_are_in_the_text_format(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE turret_requests_total counter" in answer.text


@pytest.fixture
def waiting(settings: Settings, tmp_path: Path) -> TestClient:
    """A service that waits for its first version, and hasn't begun to look for it."""
    return TestClient(create_app(settings.model_copy(update={"bundles": tmp_path / "empty", "wait": True})))


@pytest.mark.parametrize("path", ["/readyz", "/v1/version", "/v1/items/101/similar"])
def test_without_a_version_it_is_alive_and_not_ready(waiting: TestClient, path: str) -> None:
    answer = waiting.get(path)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert answer.json()["error"]["field"] == "bundles"
    assert answer.json()["error"]["message"].startswith("no version is live yet: ")
    assert waiting.get("/livez").json() == {"status": "alive"}


def test_what_needs_no_version_goes_on_without_one(waiting: TestClient) -> None:
    event = {"event_id": 1, "user_id": 7, "item_id": 101}
    assert waiting.post("/v1/events", json={"events": [event]}).json() == {"stored": 1, "duplicates": 0}
    assert waiting.get("/v1/users/7").json()["total"] == 1
    assert waiting.get("/v1/versions").json() == {"live": None, "versions": []}
    assert "turret_live_version{" not in waiting.get("/metrics").text
    assert waiting.post("/v1/recommend/batch", json={"requests": [{}]}).status_code == 503


def test_a_replica_that_fell_back_is_ready_only_if_no_other_serves_the_live_version(
    settings: Settings, make_contents: Callable[..., BundleContents]
) -> None:
    """Running workers and other replicas keep the live version, and nothing is logged as an activation."""
    publish(settings.bundles, make_contents("v2", ids=range(200, 230), seed=1))
    shared_state = SharedState()
    shared_state.replicated = True
    log = ActivationLog(settings.bundles)
    log.add(new_record("v1", "ann", None))
    record = new_record("v2", "ann", "v1")
    commit(settings.bundles, log, shared_state, record, take_snapshot(settings.bundles / "v2"))
    damage(settings.bundles, "v2")
    client = TestClient(create_app(settings, WorkerContext(shared_state)))
    assert client.get("/readyz").json() == {"status": "ready", "version": "v1"}
    assert client.post("/v1/recommend", json={}).json()["version"] == "v1"
    shared_state.others_serve = True
    assert client.post("/v1/recommend", json={}).status_code == 503
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert "can't open the live version and would answer with v1" in refused.json()["error"]["message"]
    assert shared_state.target.pinned.version == "v2"
    assert current(settings.bundles) == "v2"


def test_the_metrics_of_the_last_hour_are_series(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Observation, "_sample_recent", lambda _: None)  # the test alone ends the steps
    with TestClient(create_app(settings)) as client:
        recent = client.app.state.components.observation.recent  # type: ignore[attr-defined]
        recent.sample(1000.0)
        assert client.post("/v1/recommend", json={"history": [100]}).status_code == 200
        recent.sample(1010.0)
        answer = client.get("/metrics/recent").json()
    assert answer["live"] == "v1"
    assert answer["workers"] == 1
    assert answer["histories"] == {"read": "closed", "write": "closed"}
    assert answer["requests"]["/v1/recommend"][-1] > 0
    assert answer["latency"]["/v1/recommend"]["p50"][-1] > 0
    assert answer["answers"]["towers"][-1] == 1.0
