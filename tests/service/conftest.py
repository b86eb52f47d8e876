"""The API of the service, asked in the process: one application a module for tests that only read."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import ADMIN, client_of, recommended, serving, settings_of
from turret.service.settings import Settings


@pytest.fixture
def settings(bundles: Path) -> Settings:
    return settings_of(bundles)


@pytest.fixture(scope="module")
def client(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of one application for the whole module: for tests that only read."""
    folder = tmp_path_factory.mktemp("shared") / "bundles"  # a service writes its log beside the versions
    with serving(shutil.copytree(published, folder)) as client:
        yield client


@pytest.fixture
def fresh_client(settings: Settings) -> Iterator[TestClient]:
    """A client of an application of its own, for a test that writes, activates or patches."""
    with client_of(settings) as client:
        yield client


@pytest.fixture
def admin() -> dict[str, str]:
    """The header with the right key."""
    return ADMIN


@pytest.fixture
def recommend(fresh_client: TestClient) -> Callable[..., dict[str, Any]]:
    """Ask the application of `fresh_client` for a recommendation that has to succeed."""
    return lambda **body: recommended(fresh_client, **body)
