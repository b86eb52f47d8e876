from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer, own_redis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with own_redis(tmp_path / "redis") as server:
        yield server
