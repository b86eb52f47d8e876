"""A service in the process of the tests: its settings, and calls of it that have to succeed."""

import re
from pathlib import Path
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings

KEY = "a-key-of-32-characters-for-tests"
ADMIN = {"Authorization": f"Bearer {KEY}"}


def settings_of(bundles: Path, **others: Any) -> Settings:
    """Settings of a small service in memory: no access log, and the admin calls on the port of the API."""
    given = {
        "bundles": bundles,
        "access_log": False,
        "store": "memory://",
        "admin_key": KEY,
        "admin_port": None,
        "overlap_minimum": 0,
    }
    return Settings.model_validate(given | others)


def client_of(settings: Settings) -> TestClient:
    """A client of an application of its own; `with` runs the application's start and end."""
    return TestClient(create_app(settings), raise_server_exceptions=False)


def serving(bundles: Path, **others: Any) -> TestClient:
    """A client of a service on `bundles` with the usual settings and these others."""
    return client_of(settings_of(bundles, **others))


def recommended(client: TestClient, **body: Any) -> dict[str, Any]:
    """Ask for a recommendation that has to succeed; without its id, equal requests have equal answers."""
    answer = client.post("/v1/recommend", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert re.fullmatch("[0-9a-f]{32}", found.pop("answer_id"))
    return found


def ids(answer: dict[str, Any]) -> list[Any]:
    """The ids of an answer's items."""
    return [item["id"] for item in answer["items"]]


def post_events(client: TestClient, *events: dict[str, Any]) -> dict[str, Any]:
    """Store events; gives the answer."""
    answer = client.post("/v1/events", json={"events": events})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def activate(client: TestClient, version: Any, **more: Any) -> httpx2.Response:
    """Ask for an activation with the admin key."""
    return client.post("/admin/activate", json={"version": version, **more}, headers=ADMIN)


def sample(text: str, name: str) -> float:
    """The value of a sample in the text of metrics, 0 where it is missing."""
    lines = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[-1]) if lines else 0.0
