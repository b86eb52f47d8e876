"""Real vector engines; a test is skipped where they aren't installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.engine_servers import SERVERS, EngineServer, RedisSearchServer

__all__ = ["EngineServer", "RedisSearchServer", "need_milvus_client", "running"]


def need_milvus_client() -> None:
    """Skip the test where the client of Milvus is not installed."""
    pytest.importorskip("pymilvus", reason="Milvus needs its client: pip install 'turret[milvus]'")


@contextmanager
def running(name: str, folder: Path) -> Iterator[EngineServer]:
    """A running engine by its name, `redis` or `milvus`."""
    if name == "milvus":
        need_milvus_client()
    try:
        server = SERVERS[name](folder)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    try:
        server.start()
        yield server
    finally:
        server.kill()
