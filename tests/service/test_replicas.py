"""Replicas of a service: each has a shared state of its own, and all have one record."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_records import MemoryRecords, RecordServer
from tests.support.virtual_time import in_virtual_time
from turret.service.errors import BusyError, ReplicasUnavailableError, ServiceError
from turret.service.replicas import local_state
from turret.service.replicas.coordination import SILENT_SECONDS, Replicas
from turret.service.replicas.follower import FORGET_SECONDS, Follower
from turret.service.replicas.live_record import LiveRecord, Report, read_record
from turret.service.replicas.local_state import adopt, begin, complete_log
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.telemetry.metrics import Metrics
from turret.service.versions.activation_log import ActivationLog
from turret.service.versions.activation_state import (
    activation_lock,
    begin_provisionally,
    initialise,
    new_record,
)
from turret.service.versions.model_holder import ModelHolder
from turret.service.versions.traffic_split import Route, Routes, read_routes, write_routes
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.pointer import current, point
from turret.tower.format.snapshot import Snapshot, take_snapshot

CANARY = Routes(canary=Route(version="v2", share=0.5))
NEWER = CANARY.model_copy(update={"salt": "00"})


@pytest.fixture
def root(bundles: Path, make_contents: Callable[..., BundleContents]) -> Path:
    """The folder of all replicas, whose current version is v1."""
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    return bundles


@pytest.fixture
def server() -> RecordServer:
    return RecordServer()


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]


# --- The record and the reports

RECORD = LiveRecord(number=7, version="v2", manifest="ab" * 32, previous="v1", who="ann", time="now")


def test_a_record_is_read_as_it_was_written() -> None:
    """During an upgrade both releases read it: fields of a later one are ignored."""
    routes = Routes(canary=Route(version="v3", share=0.5, manifest="cd" * 32), salt="00ff")
    record = RECORD.model_copy(update={"routes": routes, "routes_number": 3})
    assert read_record(record.encoded()) == record
    assert read_record(json.dumps(RECORD.model_dump() | {"mood": 1}).encode()) == RECORD
    assert read_record(b"") is None


@pytest.mark.parametrize(
    "change",
    [
        {"version": "../v2"},
        {"version": "current"},
        {"manifest": "xyz"},
        {"number": 0},
        {"number": 2**62 - 1},
        {"routes_number": 2**62 - 1},
        {"routes": 1},
    ],
)
def test_a_record_that_could_not_be_served_is_an_error_in_words(change: dict[str, Any]) -> None:
    with pytest.raises(ReplicasUnavailableError, match=r"no record of this service .* delete the key"):
        read_record(json.dumps(RECORD.model_dump() | change).encode())


# --- The first target of a replica


@pytest.fixture
def begun(root: Path, server: RecordServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SharedState]:
    """Begin a replica, which doesn't wait for a store that is just starting."""
    monkeypatch.setattr(local_state, "_START_SECONDS", 0.0)

    def begin_replica(folder: Path = root, wait: bool = False) -> SharedState:
        shared_state = SharedState()
        begin(Settings(bundles=folder, wait=wait), shared_state, MemoryRecords(server))
        assert shared_state.replicated
        return shared_state

    return begin_replica


def record_of(root: Path, version: str, number: int, **more: Any) -> LiveRecord:
    manifest = take_snapshot(root / version).manifest
    return LiveRecord(number=number, version=version, manifest=manifest, previous="v1", who="ann", **more)


def test_a_replica_begins_with_the_record_and_not_with_the_pointer(
    root: Path, server: RecordServer, begun: Callable[..., SharedState], caplog: pytest.LogCaptureFixture
) -> None:
    server.record = record_of(root, "v2", 7).encoded()
    number, digest, version = begun().target.pinned
    assert (number, version) == (7, "v2")
    assert digest[:32].hex() == take_snapshot(root / "v2").manifest
    assert "names version v1, but the live version of all replicas is v2" in caplog.text


def test_the_first_replica_begins_with_the_pointer(begun: Callable[..., SharedState]) -> None:
    assert begun().target.pinned[::2] == (1, "v1")
    assert begun(wait=True).target.value == 0  # a worker looks for a version that can be opened


def test_without_a_record_that_can_be_read_it_begins_with_the_pointer_provisionally(
    root: Path,
    server: RecordServer,
    begun: Callable[..., SharedState],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.record = b"something else"
    assert begun().target.pinned[::2] == (-1, "v1")
    assert "delete the key" in caplog.text
    server.fault = "down"
    assert begun().target.pinned[::2] == (-1, "v1")
    assert not (root / "activations.jsonl").exists()
    assert "until the replicas' record is read" in caplog.text
    empty = tmp_path / "empty"
    empty.mkdir()
    assert begun(empty, wait=True).target.value == 0
    with pytest.raises(ServiceError, match="holds no current version"):
        begun(empty)


def test_an_older_record_and_older_routes_change_nothing(root: Path) -> None:
    shared_state = SharedState()
    write_routes(root, CANARY)
    assert adopt(root, shared_state, record_of(root, "v2", 7, routes=CANARY, routes_number=3))
    assert adopt(root, shared_state, record_of(root, "v1", 6, routes_number=2))
    assert shared_state.target.pinned[::2] == (7, "v2")
    assert shared_state.routes.value == 3


def test_a_missing_line_of_the_log_is_written_once(root: Path) -> None:
    point(root, "v1")
    record = record_of(root, "v2", 7)
    with activation_lock(root), pytest.raises(BusyError):
        complete_log(root, record)
    for _ in range(2):
        complete_log(root, record)
    (line,) = lines(root)
    assert (line["sequence"], line["version"], line["who"], line["previous"]) == (7, "v2", "ann", "v1")
    assert line["manifest"] == record.manifest
    assert ActivationLog(root).sequence == 7
    assert current(root) == "v2"
    point(root, "v1")
    complete_log(root, record)
    assert current(root) == "v1", "somebody has moved it since"


# --- Activations of several


class Replica:
    """The parts of a replica that `Replicas` connects."""

    def __init__(self, root: Path, server: RecordServer, name: str) -> None:
        self.root = root
        self.name = name
        self.shared = SharedState()
        self.log = ActivationLog(root)
        self.records = MemoryRecords(server)
        self.replicas = Replicas(root, self.log, self.shared, self.records, name)

    async def settle(self) -> int:
        await self.replicas.settle(await self.records.view())
        return self.shared.target.value

    async def activate(self, version: str) -> int:
        async with self.replicas.turn():
            return await self.commit(version)

    async def commit(self, version: str) -> int:
        self.log.refresh()
        snapshot = Snapshot(take_snapshot(self.root / version).manifest)
        return await self.replicas.commit(new_record(version, "ann", current(self.root)), snapshot)

    async def route(self, routes: Routes) -> int:
        async with self.replicas.turn():
            return await self.replicas.commit_routes(routes)

    async def report(self, **numbers: int) -> None:
        await self.records.view(self.name, Report(**numbers).model_dump_json().encode(), 60)

    @property
    def version(self) -> str:
        return self.shared.target.pinned.version


class World:
    """Two replicas on one folder and one record; `unchanged` is that nobody has activated anything."""

    def __init__(self, root: Path, server: RecordServer) -> None:
        self.root, self.server = root, server
        self.a, self.b = (Replica(root, server, name) for name in "ab")

    async def begin(self) -> None:
        initialise(self.root, self.a.log, self.a.shared)
        await self.a.settle()
        await self.b.settle()

    @property
    def unchanged(self) -> bool:
        return (current(self.root), self.a.version, len(lines(self.root))) == ("v1", "v1", 1)


@pytest.fixture
def world(root: Path, server: RecordServer) -> World:
    return World(root, server)


@in_virtual_time
async def test_the_others_take_the_number_the_version_and_its_content(world: World) -> None:
    await world.begin()
    a, b = world.a, world.b
    assert (b.shared.target.value, b.version) == (1, "v1")
    assert await a.activate("v2") == 2
    assert await b.settle() == 2
    manifest = bytes.fromhex(take_snapshot(world.root / "v2").manifest)
    assert (b.version, b.shared.target.pinned.digest[:32]) == ("v2", manifest)
    assert current(world.root) == "v2"
    assert await b.activate("v3") == 3
    assert await a.settle() == 3
    assert [line["sequence"] for line in lines(world.root)] == [1, 2, 3]


@in_virtual_time
async def test_a_turn_begins_after_that_of_another_replica(world: World) -> None:
    """It reads the record that the other replica has written."""
    await world.begin()
    order = []

    async def activate(replica: Replica, version: str) -> None:
        async with replica.replicas.turn():
            order.append(f"{replica.name} begins at {replica.version}")
            await asyncio.sleep(30)  # longer than a lease lasts: it is renewed meanwhile
            await replica.commit(version)

    await asyncio.gather(activate(world.a, "v2"), activate(world.b, "v3"))
    assert order == ["a begins at v1", "b begins at v2"]


@in_virtual_time
async def test_a_call_that_is_given_up_while_it_waits_leaves_no_lease(world: World) -> None:
    await world.begin()
    async with world.a.replicas.turn():
        waiting = asyncio.create_task(world.b.activate("v3"))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await world.a.commit("v2")
    assert world.server.lease[1] <= asyncio.get_running_loop().time()
    assert await world.b.activate("v3") == 3


@in_virtual_time
async def test_a_replica_that_lost_its_lease_can_not_overwrite_a_later_activation(world: World) -> None:
    """As one that was stopped in the middle of an activation; the pointer stays that of the other."""
    await world.begin()
    async with world.a.replicas.turn():
        world.server.lease = ("", 0.0)
        await world.b.activate("v3")
        with pytest.raises(BusyError, match="another replica has activated version v3 meanwhile; retry"):
            await world.a.commit("v2")
    assert current(world.root) == "v3"
    assert [line["version"] for line in lines(world.root)] == ["v1", "v3"]
    assert world.a.version == "v1"
    assert await world.a.settle() == 2
    assert world.a.version == "v3"


@in_virtual_time
async def test_without_the_store_nothing_is_changed(world: World) -> None:
    """Neither when it dies before an activation or a change of the routes, nor within one."""
    await world.begin()
    with world.server.failing("down"), pytest.raises(ReplicasUnavailableError, match="nothing is changed"):
        await world.a.activate("v2")
    assert world.unchanged
    async with world.a.replicas.turn():
        with world.server.failing("down"):
            with pytest.raises(ReplicasUnavailableError, match="the change is not confirmed"):
                await world.a.commit("v2")
            with pytest.raises(ReplicasUnavailableError):
                await world.a.replicas.commit_routes(CANARY)
    assert world.unchanged
    assert (read_routes(world.root), world.a.shared.routes.value) == (Routes(), 0)
    assert await world.a.activate("v2") == 2


@in_virtual_time
async def test_a_commit_that_the_store_takes_after_the_timeout_is_followed(world: World) -> None:
    """The caller got an error that said so; both replicas are on one version in the end."""
    await world.begin()
    async with world.a.replicas.turn():
        with world.server.failing("late"), pytest.raises(ReplicasUnavailableError, match="not confirmed"):
            await world.a.commit("v2")
    assert await world.a.settle() == await world.b.settle() == 2
    assert world.a.version == world.b.version == "v2"


@in_virtual_time
async def test_a_lost_record_is_written_again(world: World) -> None:
    """First by a replica that had not followed, then by the one that served the newer version."""
    await world.begin()
    await world.a.activate("v2")
    world.server.forget()
    assert await world.b.settle() == 1
    assert b'"v1"' in world.server.record
    assert await world.a.settle() == await world.b.settle() == 2
    assert world.a.version == world.b.version == "v2"


@in_virtual_time
async def test_a_record_from_an_older_backup_gives_way_to_the_live_version(world: World) -> None:
    await world.begin()
    old = world.server.record
    await world.a.activate("v2")
    await world.b.settle()
    world.server.record = old
    assert await world.b.settle() == 2
    assert b'"v2"' in world.server.record


@in_virtual_time
async def test_a_record_of_the_same_number_with_other_content_is_replaced(world: World) -> None:
    await world.begin()
    await world.a.activate("v2")
    manifest = take_snapshot(world.root / "v2").manifest
    world.server.record = world.server.record.replace(manifest.encode(), b"ab" * 32)
    assert await world.a.settle() == 3
    assert await world.b.settle() == 3
    assert world.b.shared.target.pinned.digest[:32].hex() == manifest


@in_virtual_time
async def test_a_provisional_version_gives_way_to_the_record_and_is_never_written_to_it(world: World) -> None:
    await world.begin()
    late = Replica(world.root, world.server, "late")
    (world.root / "current").write_text("v3\n")
    begin_provisionally(world.root, late.shared)
    assert (late.shared.target.value, late.version) == (-1, "v3")
    assert await late.settle() == 1
    assert late.version == "v1"
    world.server.forget()
    other = Replica(world.root, world.server, "other")
    begin_provisionally(world.root, other.shared)
    assert await other.settle() == -1
    assert world.server.record == b""


# --- Routes


@in_virtual_time
async def test_routes_are_taken_from_the_record_not_from_the_folder(world: World) -> None:
    """The folder may be another one, and others may write there."""
    await world.begin()
    assert await world.a.route(CANARY) == 1
    (world.root / "routes.json").write_text("{}")
    await world.b.settle()
    assert (read_routes(world.root), world.b.shared.routes.value) == (CANARY, 1)
    assert await world.a.activate("v3") == 2
    await world.b.settle()
    assert read_routes(world.root) == CANARY


@in_virtual_time
async def test_routes_are_not_written_while_another_replica_may_change_them(world: World) -> None:
    """It shares the folder: the older routes of this one would stay, under the number of the newer ones."""
    await world.begin()
    async with world.a.replicas.turn():
        await world.a.replicas.commit_routes(CANARY)
        (world.root / "routes.json").write_text(NEWER.model_dump_json())  # as the next call does first
        await world.b.settle()
        assert (read_routes(world.root), world.b.shared.routes.value) == (NEWER, 0)
    await world.b.settle()
    assert (read_routes(world.root), world.b.shared.routes.value) == (CANARY, 1)


# --- Reports


@in_virtual_time
async def test_a_call_waits_for_the_reports_of_all(world: World) -> None:
    await world.begin()
    loop = asyncio.get_running_loop()
    await world.b.report(number=1, routes=0, items=4)

    async def follow() -> None:
        await asyncio.sleep(0.2)
        await world.b.report(number=2, routes=1, items=5)

    following = asyncio.create_task(follow())
    assert await world.a.replicas.behind(2, 0, 5) == ()
    await following
    assert loop.time() < 0.3
    assert await world.a.replicas.items_behind(5, 5) == ()
    assert await world.a.replicas.behind(3, 0, 0.2) == ("b",)
    assert await world.a.replicas.behind(2, 2, 0.2) == ("b",)
    assert await world.a.replicas.items_behind(6, 0.2) == ("b",)
    assert loop.time() == pytest.approx(0.8, abs=0.1)
    assert await world.b.replicas.behind(9, 9, 0.2) == ()  # its own workers are awaited elsewhere


@in_virtual_time
async def test_replicas_are_named_that_are_silent_or_late_when_the_store_dies(world: World) -> None:
    await world.begin()
    loop = asyncio.get_running_loop()
    await world.b.report(number=1)
    waiting = asyncio.create_task(world.a.replicas.behind(2, 0, 30))
    await asyncio.sleep(1)
    world.server.fault = "down"
    assert await waiting == ("b",)
    world.server.fault = ""
    await asyncio.sleep(SILENT_SECONDS)
    before = loop.time()
    assert await world.a.replicas.behind(2, 0, 30) == ("b",)
    assert loop.time() == before, "a silent one is not waited for"


# --- Following


class Following:
    """A replica whose only worker follows the record."""

    def __init__(self, root: Path, server: RecordServer, name: str) -> None:
        self.replica = Replica(root, server, name)
        self.replica.shared.replicated = True
        self.model_holder = ModelHolder(root, True, self.replica.shared)
        self.metrics = Metrics()
        self.replica.shared.slots[0].occupy()
        clock = asyncio.get_running_loop().time
        connected = self.replica.replicas, self.replica.records, name, self.metrics
        self.follower = Follower(self.model_holder, *connected, clock)

    async def for_seconds(self, seconds: float) -> None:
        following = asyncio.create_task(self.follower.follow())
        while seconds > 0:
            await self.model_holder.follow()  # as its worker does
            await asyncio.sleep(min(seconds, 0.5))
            seconds -= 0.5
        following.cancel()

    @property
    def seen(self) -> tuple[float | None, float | None]:
        value = self.metrics.registry.get_sample_value
        return value("turret_replicas"), value("turret_replicas_behind")


@pytest.fixture
def following(root: Path, server: RecordServer) -> Callable[[str], Following]:
    return lambda name: Following(root, server, name)


@in_virtual_time
async def test_a_follower_takes_the_record_reports_it_and_counts_the_others(
    world: World, following: Callable[[str], Following]
) -> None:
    await world.begin()
    new = following("c")
    await new.follower.join()
    assert new.model_holder.version == "v1"
    await world.b.report(number=2)
    await world.a.activate("v2")
    world.server.items = 5
    await new.for_seconds(2)
    assert new.model_holder.version == "v2"
    assert await world.a.replicas.behind(2, 0, 0) == ()
    assert await world.a.replicas.items_behind(5, 0) == ("b",)
    assert new.replica.shared.items.value > 0, "its workers read the items again"
    assert (new.seen, new.replica.shared.others_serve) == ((2, 0), True)
    await new.for_seconds(SILENT_SECONDS)
    assert (new.seen, new.replica.shared.others_serve) == ((1, 1), False)
    await asyncio.sleep(FORGET_SECONDS)
    await new.for_seconds(1)
    assert new.seen == (1, 0)
    await new.follower.leave()
    assert world.server.reports == {}


@in_virtual_time
async def test_a_follower_keeps_the_live_version_without_the_store_and_says_so_once(
    world: World, following: Callable[[str], Following], caplog: pytest.LogCaptureFixture
) -> None:
    await world.begin()
    new = following("c")
    await new.follower.join()
    with world.server.failing("down"):
        await new.for_seconds(5)
    assert new.model_holder.version == "v1"
    assert [one for one in caplog.messages if "activations are refused" in one] == [
        "the store is unavailable; the live version stays, and activations are refused"
    ]
    await new.for_seconds(1)
    assert "the replicas' record is followed again" in caplog.messages


@in_virtual_time
async def test_the_first_follower_makes_the_version_of_the_folder_the_first_one(
    root: Path, server: RecordServer, following: Callable[[str], Following]
) -> None:
    """Provisionally while the store is away; then it is announced to all."""
    new = following("a")
    with server.failing("down"):
        await new.for_seconds(1)
    assert (new.replica.shared.target.value, new.model_holder.version) == (-1, "v1")
    assert server.record == b""
    other = following("b")
    await other.for_seconds(2)
    record = read_record(server.record)
    assert record is not None
    assert (record.number, record.version) == (1, "v1")
    await new.for_seconds(1)
    assert new.replica.shared.target.value == 1


@in_virtual_time
async def test_a_line_that_the_replica_of_a_call_could_not_write_is_written_by_another(
    root: Path, server: RecordServer, following: Callable[[str], Following]
) -> None:
    server.record = record_of(root, "v2", 7).encoded()
    new = following("b")
    await new.for_seconds(1)
    assert not (root / "activations.jsonl").exists()
    await new.for_seconds(5)
    assert [line["sequence"] for line in lines(root)] == [7]
    assert current(root) == "v2"
