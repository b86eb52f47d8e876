"""The API of the service, asked in the process, and an event loop with a virtual clock for coroutines."""

import asyncio
import shutil
from collections.abc import Iterator
from inspect import iscoroutinefunction, signature
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.members import Members
from tests.support.service_app import client_of, serving, settings_of
from tests.support.virtual_time import run
from turret.service.settings import Settings


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function; without real servers, no time passes but in its loop."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments})
    is_real = pyfuncitem.get_closest_marker("process") or pyfuncitem.get_closest_marker("nightly")
    (asyncio.run if is_real else run)(test)
    return True


@pytest.fixture
def members(three: Path, tmp_path: Path) -> Members:
    return Members(three, tmp_path / "record.sqlite")


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
