"""Real vector engines; a test is skipped where they aren't installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.engine_servers import SERVERS, EngineServer, RedisSearchServer

__all__ = ["EngineServer", "RedisSearchServer", "running"]


@contextmanager
def running(name: str, folder: Path) -> Iterator[EngineServer]:
    """A running engine by its name, `redis` or `milvus`."""
    try:
        server = SERVERS[name](folder)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        server.start()
        yield server
    finally:
        server.kill()
