from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service_process import Process

Start = Callable[..., Process]


@pytest.fixture
def start(bundles: Path) -> Iterator[Start]:
    """Start the real service on `bundles`, with settings; it ends with the test."""
    started: list[Process] = []

    def begin(root: Path = bundles, **settings: Any) -> Process:
        started.append(Process(root, **settings))
        return started[-1]

    yield begin
    for process in started:
        process.close()
