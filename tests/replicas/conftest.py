"""Two real services, each with its own workers and port, on one folder of bundles and one Redis."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents
from tests.faults.processes import children, metric, until
from tests.support.item_towers import with_item_tower
from tests.support.redis_server import RedisServer, own_redis
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish

Begin = Callable[..., Process]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with own_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Versions with disjoint items, 100-159, 200-239 and 300-319; v1 is current and has an item tower."""
    root = tmp_path / "bundles"
    publish(root, with_item_tower(contents("v1")))
    publish(root, with_item_tower(contents("v2", ids=range(200, 240), seed=1)))
    publish(root, with_item_tower(contents("v3", ids=range(300, 320), seed=2)))
    return root


@pytest.fixture
def replica(root: Path, redis: RedisServer) -> Iterator[Begin]:
    """Start a replica with settings; it ends with the test."""
    started: list[Process] = []

    def begin(bundles: Path = root, **settings: Any) -> Process:
        started.append(Process(bundles, **{"store": redis.address, "history_timeout": 0.5, **settings}))
        return started[-1]

    yield begin
    for process in started:
        process.close()


@pytest.fixture
def pair(replica: Begin) -> tuple[Process, Process]:
    """Two replicas of two workers each, that know of each other."""
    services = replica(workers=2), replica(workers=2)
    for service in services:
        until(lambda service=service: metric(service, "turret_replicas ") == 2)  # type: ignore[misc]
    return services


def name_of(service: Process) -> str:
    return f"{socket.gethostname()}:{service.urls[0].rpartition(':')[2]}"


@contextmanager
def stopped(service: Process) -> Iterator[None]:
    """Stop all processes of a replica; they go on at the end."""
    pids = [service.process.pid, *children(service.process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
