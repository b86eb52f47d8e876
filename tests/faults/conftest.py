"""Real processes, and what stands in front of them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.proxy import Proxy
from tests.service_process import Process

Start = Callable[..., Process]


@pytest.fixture
def start(bundles: Path) -> Iterator[Start]:
    """Start a service on a folder (that of `bundles`), with settings by name; it ends with the test."""
    started: list[Process] = []

    def begin(root: Path = bundles, **settings: Any) -> Process:
        started.append(Process(root, **settings))
        return started[-1]

    yield begin
    for process in started:
        process.close()


@pytest.fixture
def proxy() -> Iterator[Callable[[list[str]], str]]:
    """Put a proxy in front of services; gives its address."""
    started: list[Proxy] = []

    def begin(services: list[str]) -> str:
        started.append(Proxy(services))
        return started[-1].url

    yield begin
    for one in started:
        one.stop()
