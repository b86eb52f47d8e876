"""The first target of a replica, and a log that the replica that took a call could not write."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import RedisServer, needs_redis, own_redis
from turret.service.errors import BusyError, ServiceError
from turret.service.models.activation_log import ActivationLog
from turret.service.models.activation_state import activation_lock
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.service.replicas import local_state
from turret.service.replicas.live_record import LiveRecord
from turret.service.replicas.local_state import adopt, begin, complete_log
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.stores.redis.records import RedisRecords
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.pointer import current, point
from turret.tower.format.snapshot import take_snapshot

KEY = "turret:replicas:default:live"


@pytest.fixture
def two(bundles: Path, make_contents: Callable[..., BundleContents]) -> Path:
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    return bundles


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(local_state, "_START_SECONDS", 0.0)
    with own_redis(tmp_path / "redis") as server:
        yield server


def record_of(root: Path, version: str, number: int, **more: Any) -> LiveRecord:
    manifest = take_snapshot(root / version).manifest
    return LiveRecord(number=number, version=version, manifest=manifest, previous="v1", who="ann", **more)


def begun(root: Path, server: RedisServer, wait: bool = False) -> SharedState:
    shared_state = SharedState()
    settings = Settings(bundles=root, store=server.address, wait=wait)
    begin(settings, shared_state, RedisRecords(server.address, "default", 0.3))
    assert shared_state.replicated
    return shared_state


@needs_redis
def test_a_replica_begins_with_the_record_and_not_with_the_pointer(
    two: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.ask("SET", KEY, record_of(two, "v2", 7).encoded())
    number, digest, version = begun(two, server).target.pinned
    assert (number, version) == (7, "v2")
    assert digest[:32].hex() == take_snapshot(two / "v2").manifest
    assert "names version v1, but the live version of all replicas is v2" in caplog.text


@needs_redis
def test_the_first_replica_begins_with_the_pointer(two: Path, server: RedisServer) -> None:
    assert begun(two, server).target.pinned[::2] == (1, "v1")
    assert begun(two, server, wait=True).target.value == 0  # a worker looks for a version that can be opened


@needs_redis
def test_without_redis_a_replica_begins_with_the_pointer_provisionally(
    two: Path, server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    assert begun(two, server).target.pinned[::2] == (-1, "v1")
    assert not (two / "activations.jsonl").exists()
    assert "until the replicas' record is read" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert begun(empty, server, wait=True).target.value == 0
    with pytest.raises(ServiceError, match="holds no current version"):
        begun(empty, server)


@needs_redis
def test_a_record_with_other_data_counts_as_none_that_can_be_read(
    two: Path, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.ask("SET", KEY, "something else")
    assert begun(two, server).target.pinned[::2] == (-1, "v1")
    assert "delete the key" in caplog.text


def test_an_older_record_and_older_routes_change_nothing(two: Path) -> None:
    shared_state = SharedState()
    routes = Routes(canary=Route(version="v2", share=0.5))
    write_routes(two, routes)
    assert adopt(two, shared_state, record_of(two, "v2", 7, routes=routes, routes_number=3))
    assert adopt(two, shared_state, record_of(two, "v1", 6, routes_number=2))
    assert shared_state.target.pinned[::2] == (7, "v2")
    assert shared_state.routes.value == 3


def test_a_missing_line_of_the_log_is_written_once(two: Path) -> None:
    point(two, "v1")
    record = record_of(two, "v2", 7)
    with activation_lock(two), pytest.raises(BusyError):
        complete_log(two, record)
    for _ in range(2):
        complete_log(two, record)
    (line,) = [json.loads(line) for line in (two / "activations.jsonl").read_text().splitlines()]
    assert (line["sequence"], line["version"], line["who"], line["previous"]) == (7, "v2", "ann", "v1")
    assert line["manifest"] == record.manifest
    assert ActivationLog(two).sequence == 7
    assert current(two) == "v2"
    point(two, "v1")
    complete_log(two, record)
    assert current(two) == "v1", "somebody has moved it since"
