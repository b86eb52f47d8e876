"""The API of the service, asked in the process: one application a module for tests that only read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings

KEY = "a-key-of-sixteen"
ADMIN = {"Authorization": f"Bearer {KEY}"}


def settings_of(bundles: Path, **others: Any) -> Settings:
    """Settings of a small service in memory: no access log, the admin calls on the port of the API."""
    given = {
        "bundles": bundles,
        "access_log": False,
        "store": "memory://",
        "admin_key": KEY,
        "admin_port": None,
        "overlap_minimum": 0,
    }
    return Settings.model_validate(given | others)


@pytest.fixture
def settings(bundles: Path) -> Settings:
    return settings_of(bundles)


@pytest.fixture(scope="module")
def client(published: Path) -> Iterator[TestClient]:
    """A client of one application for the whole module: for tests that only read."""
    with TestClient(create_app(settings_of(published)), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def fresh_client(settings: Settings) -> Iterator[TestClient]:
    """A client of an application of its own, for a test that writes, activates or patches."""
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def admin() -> dict[str, str]:
    """The header with the right key."""
    return ADMIN


@pytest.fixture
def recommend(fresh_client: TestClient) -> Callable[..., dict[str, Any]]:
    """Ask the application of `fresh_client` for a recommendation that has to succeed."""

    def ask(**body: Any) -> dict[str, Any]:
        answer = fresh_client.post("/v1/recommend", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return ask
