"""The trained shop, and services in this process that answer from it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.trained import TrainedShop, trained_shop
from turret.service.http.app import create_app
from turret.service.settings import Settings

KEY = "a-key-of-32-characters-for-tests"
ADMIN = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="session")
def shop() -> TrainedShop:
    """A shop with the runs and versions `ids` and `features`. Nobody may write to it."""
    return trained_shop()


@contextmanager
def answering(bundles: Path, store: str = "memory://") -> Iterator[TestClient]:
    """A client of the service, which runs in this process and takes admin calls with ADMIN."""
    settings = Settings.model_validate(
        {"bundles": bundles, "store": store, "admin_key": KEY, "admin_port": None, "overlap_minimum": 0}
    )
    with TestClient(create_app(settings)) as client:
        yield client
