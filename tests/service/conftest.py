"""The API of the service, asked in the process: one application a module for tests that only read."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.service_app import client_of, serving, settings_of
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
