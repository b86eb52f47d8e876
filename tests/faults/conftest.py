"""What stands in front of real processes."""

from collections.abc import Callable, Iterator

import pytest

from tests.faults.proxy import Proxy


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
