import re
from typing import get_args

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_admin_app, create_app
from turret.service.models.gate import Reason
from turret.service.settings import Settings
from turret.service.telemetry.metrics import FAMILIES, REASONS, ROUTES


def value(client: TestClient, sample: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(sample + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0


def test_requests_are_counted_by_route_and_status(fresh_client: TestClient) -> None:
    for body in ({}, {}, {"k": 0}):
        fresh_client.post("/v1/recommend", json=body)
    fresh_client.get("/v1/items/101/similar")
    fresh_client.put("/v1/items/101", json={"features": {}})
    fresh_client.get("/v1/users/1")
    fresh_client.get("/v1/users/2")
    assert value(fresh_client, 'turret_requests_total{route="/v1/recommend",status="200"}') == 2
    assert value(fresh_client, 'turret_requests_total{route="/v1/recommend",status="422"}') == 1
    assert (
        value(fresh_client, 'turret_requests_total{route="/v1/items/{item_id:path}/similar",status="200"}')
        == 1
    )
    assert value(fresh_client, 'turret_requests_total{route="/v1/items/{item_id:path}",status="200"}') == 1
    assert value(fresh_client, 'turret_requests_total{route="/v1/users/{user_id:path}",status="200"}') == 2
    assert value(fresh_client, 'turret_request_seconds_count{class="2xx",route="/v1/recommend"}') == 2
    assert value(fresh_client, 'turret_request_seconds_count{class="4xx",route="/v1/recommend"}') == 1


def test_paths_that_do_not_exist_share_one_label(fresh_client: TestClient) -> None:
    for number in range(5):
        fresh_client.get(f"/nowhere/{number}")
    assert value(fresh_client, 'turret_requests_total{route="unknown",status="404"}') == 5
    assert "nowhere" not in fresh_client.get("/metrics").text


def test_a_fault_of_the_service_is_counted_as_500(
    fresh_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turret.service.http.routes.versions.checked_versions", None)
    fresh_client.get("/v1/versions")
    assert value(fresh_client, 'turret_requests_total{route="/v1/versions",status="500"}') == 1


def test_stored_events_are_counted_once(fresh_client: TestClient) -> None:
    event = {"event_id": 1, "user_id": 1, "item_id": 1}
    fresh_client.post("/v1/events", json={"events": [event, event]})
    assert value(fresh_client, "turret_events_stored_total") == 1


def test_two_applications_count_apart(fresh_client: TestClient, settings: Settings) -> None:
    fresh_client.get("/livez")
    with TestClient(create_app(settings)) as other:
        assert value(other, 'turret_requests_total{route="/livez",status="200"}') == 0


def test_every_route_of_the_service_is_a_label(settings: Settings) -> None:
    """Else its requests would be counted as `unknown`."""
    app = create_app(settings.model_copy(update={"admin_port": 0}))
    paths = {*app.openapi()["paths"], *create_admin_app(app).openapi()["paths"]}
    assert paths
    known = {re.sub(r":\w+}", "}", route) for route in ROUTES}
    assert paths <= known


def test_every_reason_of_the_gate_is_a_label() -> None:
    assert set(get_args(Reason)) <= set(REASONS)


def test_names_are_those_of_the_field() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch("turret(_[a-z]+)+", family.name)
        assert not family.name.endswith("_total")  # the text format adds it
        assert list(family.buckets) == sorted(set(family.buckets))
        assert (family.kind in ("histogram", "shares")) == bool(family.buckets)
