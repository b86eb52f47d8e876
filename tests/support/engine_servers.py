"""Real vector engines, for the tests that have them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.engine_servers import SERVERS, EngineServer, RedisSearchServer
from tests.support.tools import missing, require

__all__ = ["EngineServer", "RedisSearchServer", "running"]
_TOOLS = {"redis": "redis_search", "milvus": "milvus_server"}


@contextmanager
def running(name: str, folder: Path) -> Iterator[EngineServer]:
    """A running engine by its name, `redis` or `milvus`; the test is skipped where it isn't installed."""
    if name == "milvus":
        require("milvus")  # its client
    try:
        server = SERVERS[name](folder)
    except FileNotFoundError as error:
        missing(_TOOLS[name], str(error))
    try:
        server.start()
        yield server
    finally:
        server.kill()
