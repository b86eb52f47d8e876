"""Replicas without processes: each has a shared state of its own, and all have one real Redis."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import RedisServer, needs_redis, own_redis
from turret.service.errors import BusyError, ReplicasUnavailableError
from turret.service.models.activation_log import ActivationLog
from turret.service.models.activation_state import begin_provisionally, initialise, new_record
from turret.service.models.traffic_split import Route, Routes, read_routes
from turret.service.replicas.coordination import Replicas
from turret.service.replicas.live_record import Report
from turret.service.shared_state import SharedState
from turret.service.stores.redis.records import RedisRecords
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.errors import BundleError
from turret.tower.format.pointer import current
from turret.tower.format.snapshot import Snapshot, take_snapshot

pytestmark = needs_redis
CANARY = Routes(canary=Route(version="v2", share=0.5))


class Replica:
    """The parts of a replica that `Replicas` connects."""

    def __init__(self, root: Path, address: str, name: str) -> None:
        self.root = root
        self.name = name
        self.shared = SharedState()
        self.log = ActivationLog(root)
        self.records = RedisRecords(address, "default", 0.3)
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

    async def report(self, **numbers: int) -> None:
        await self.records.view(self.name, Report(**numbers).model_dump_json().encode(), 60)

    @property
    def version(self) -> str:
        return self.shared.target.pinned.version


class World:
    """Two replicas on one folder, whose current version is v1, and one Redis."""

    def __init__(self, root: Path, server: RedisServer) -> None:
        self.root, self.server = root, server
        self.a, self.b = (Replica(root, server.address, name) for name in "ab")

    @asynccontextmanager
    async def begun(self) -> AsyncIterator["World"]:
        initialise(self.root, self.a.log, self.a.shared)
        try:
            await self.a.settle()
            await self.b.settle()
            yield self
        finally:
            await self.a.records.close()
            await self.b.records.close()

    def run(self, work: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        async def all_of_it() -> None:
            async with self.begun():
                await work(self)

        asyncio.run(all_of_it())


@pytest.fixture
def world(bundles: Path, make_contents: Callable[..., BundleContents], tmp_path: Path) -> Any:
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    publish(bundles, make_contents("v3", ids=range(300, 320), seed=2))
    with own_redis(tmp_path / "redis") as server:
        yield World(bundles, server)


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "activations.jsonl").read_text().splitlines()]


def test_the_others_take_the_number_the_version_and_its_content(world: World) -> None:
    async def work(world: World) -> None:
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

    world.run(work)


def test_a_turn_begins_after_that_of_another_replica(world: World) -> None:
    """It reads the record that the other replica has written."""

    async def work(world: World) -> None:
        order = []

        async def activate(replica: Replica, version: str) -> None:
            async with replica.replicas.turn():
                order.append(f"{replica.name} begins at {replica.version}")
                await asyncio.sleep(0.1)
                await replica.commit(version)

        await asyncio.gather(activate(world.a, "v2"), activate(world.b, "v3"))
        assert sorted(order) in (["a begins at v1", "b begins at v2"], ["a begins at v3", "b begins at v1"])

    world.run(work)


def test_a_call_that_is_given_up_while_it_waits_leaves_no_lease(world: World) -> None:
    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            waiting = asyncio.create_task(world.b.activate("v3"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            await world.a.commit("v2")
        assert world.server.ask("EXISTS", "turret:replicas:default:lease") == 0
        async with asyncio.timeout(2):
            assert await world.b.activate("v3") == 3

    world.run(work)


def test_a_replica_that_lost_its_lease_can_not_overwrite_a_later_activation(world: World) -> None:
    """As one that was stopped in the middle of an activation; the pointer stays that of the other."""

    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            world.server.ask("DEL", "turret:replicas:default:lease")
            await world.b.activate("v3")
            with pytest.raises(BusyError, match="another replica has activated version v3 meanwhile; retry"):
                await world.a.commit("v2")
        assert current(world.root) == "v3"
        assert [line["version"] for line in lines(world.root)] == ["v1", "v3"]
        assert world.a.version == "v1"
        assert await world.a.settle() == 2
        assert world.a.version == "v3"

    world.run(work)


def test_without_redis_nothing_is_changed(world: World) -> None:
    async def work(world: World) -> None:
        world.server.kill()
        with pytest.raises(ReplicasUnavailableError, match="nothing is changed; retry"):
            await world.a.activate("v2")
        assert (current(world.root), world.a.version, len(lines(world.root))) == ("v1", "v1", 1)

    world.run(work)


def test_a_redis_that_dies_within_an_activation_leaves_the_old_version(world: World) -> None:
    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            world.server.kill()
            with pytest.raises(ReplicasUnavailableError, match="the change is not confirmed"):
                await world.a.commit("v2")
        assert (current(world.root), world.a.version, len(lines(world.root))) == ("v1", "v1", 1)
        world.server.start()
        assert await world.a.activate("v2") == 2

    world.run(work)


def test_a_commit_that_the_store_takes_after_the_timeout_is_followed(world: World) -> None:
    """The caller got an error that said so; both replicas are on one version in the end."""

    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            with world.server.paused(), pytest.raises(ReplicasUnavailableError, match="not confirmed"):
                await world.a.commit("v2")
        await asyncio.sleep(0.1)
        assert await world.a.settle() == await world.b.settle() == 2
        assert world.a.version == world.b.version == "v2"

    world.run(work)


def test_routes_are_taken_from_the_record_not_from_the_folder(world: World) -> None:
    """The folder may be another one, and others may write there."""

    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            assert await world.a.replicas.commit_routes(CANARY) == 1
        (world.root / "routes.json").write_text("{}")
        await world.b.settle()
        assert read_routes(world.root) == CANARY
        assert world.b.shared.routes.value == 1
        assert await world.a.activate("v3") == 2
        await world.b.settle()
        assert read_routes(world.root) == CANARY

    world.run(work)


def test_routes_stay_when_redis_dies(world: World) -> None:
    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            world.server.kill()
            with pytest.raises(ReplicasUnavailableError):
                await world.a.replicas.commit_routes(CANARY)
        assert read_routes(world.root) == Routes()
        assert world.a.shared.routes.value == 0

    world.run(work)


def test_routes_that_can_not_be_written_are_told_once_and_not_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            await world.a.replicas.commit_routes(CANARY)
            await world.a.commit("v3")
        (world.root / "routes.json").unlink()
        (world.root / "routes.json").mkdir()
        for _ in range(3):
            assert await world.b.settle() == 2  # the version is followed even so
        assert world.b.shared.routes.value == 0
        assert len([line for line in caplog.messages if "routes.json" in line]) == 1

    world.run(work)


def test_a_lost_record_is_written_again(world: World) -> None:
    async def work(world: World) -> None:
        await world.a.activate("v2")
        world.server.ask("FLUSHALL")
        assert await world.b.settle() == 2 or world.b.version == "v1"
        assert await world.a.settle() == await world.b.settle() == 2
        assert world.a.version == world.b.version == "v2"

    world.run(work)


def test_a_record_from_an_older_backup_gives_way_to_the_live_version(world: World) -> None:
    async def work(world: World) -> None:
        old = world.server.ask("GET", "turret:replicas:default:live")
        await world.a.activate("v2")
        await world.b.settle()
        world.server.ask("SET", "turret:replicas:default:live", old)
        assert await world.b.settle() == 2
        assert b'"v2"' in world.server.ask("GET", "turret:replicas:default:live")

    world.run(work)


def test_a_record_of_the_same_number_with_other_content_is_replaced(world: World) -> None:
    async def work(world: World) -> None:
        await world.a.activate("v2")
        record = world.server.ask("GET", "turret:replicas:default:live").decode()
        manifest = take_snapshot(world.root / "v2").manifest
        world.server.ask("SET", "turret:replicas:default:live", record.replace(manifest, "ab" * 32))
        assert await world.a.settle() == 3
        assert await world.b.settle() == 3
        assert world.b.shared.target.pinned.digest[:32].hex() == manifest

    world.run(work)


def test_a_provisional_version_gives_way_to_the_record_and_is_never_written_to_it(world: World) -> None:
    async def work(world: World) -> None:
        late = Replica(world.root, world.server.address, "late")
        (world.root / "current").write_text("v3\n")
        begin_provisionally(world.root, late.shared)
        assert (late.shared.target.value, late.version) == (-1, "v3")
        assert await late.settle() == 1
        assert late.version == "v1"
        world.server.ask("FLUSHALL")
        other = Replica(world.root, world.server.address, "other")
        begin_provisionally(world.root, other.shared)
        assert await other.settle() == -1
        assert world.server.ask("EXISTS", "turret:replicas:default:live") == 0
        await late.records.close()
        await other.records.close()

    world.run(work)


def test_routes_need_a_live_version(bundles: Path, tmp_path: Path) -> None:
    async def work(replica: Replica) -> None:
        with pytest.raises(BundleError, match="activate one before its routes"):
            async with replica.replicas.turn():
                await replica.replicas.commit_routes(CANARY)
        await replica.records.close()

    with own_redis(tmp_path / "redis") as server:
        asyncio.run(work(Replica(bundles, server.address, "a")))


def test_a_call_waits_for_the_reports_of_all(world: World) -> None:
    async def work(world: World) -> None:
        await world.b.report(number=1, routes=0, items=4)

        async def follow() -> None:
            await asyncio.sleep(0.2)
            await world.b.report(number=2, routes=1, items=5)

        following = asyncio.create_task(follow())
        assert await world.a.replicas.behind(2, 0, 5) == ()
        await following
        assert await world.a.replicas.items_behind(5, 5) == ()
        begun = time.monotonic()
        assert await world.a.replicas.behind(3, 0, 0.2) == ("b",)
        assert await world.a.replicas.behind(2, 2, 0.2) == ("b",)
        assert await world.a.replicas.items_behind(6, 0.2) == ("b",)
        assert time.monotonic() - begun < 3
        assert await world.b.replicas.behind(9, 9, 0.2) == ()  # its own workers are awaited elsewhere

    world.run(work)


@pytest.mark.nightly
def test_a_silent_replica_is_named_and_not_waited_for(world: World) -> None:
    async def work(world: World) -> None:
        await world.b.report(number=1)
        await asyncio.sleep(3.2)
        begun = time.monotonic()
        assert await world.a.replicas.behind(2, 0, 30) == ("b",)
        assert time.monotonic() - begun < 1

    world.run(work)


def test_replicas_are_named_that_were_late_when_redis_died(world: World) -> None:
    async def work(world: World) -> None:
        await world.b.report(number=1)
        waiting = asyncio.create_task(world.a.replicas.behind(2, 0, 30))
        await asyncio.sleep(0.1)
        world.server.kill()
        assert await waiting == ("b",)

    world.run(work)


def test_routes_are_not_written_while_another_replica_may_change_them(world: World) -> None:
    """It shares the folder: the older routes of this one would stay, under the number of the newer ones."""

    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            await world.a.replicas.commit_routes(CANARY)
            newer = CANARY.model_copy(update={"salt": "00"})
            (world.root / "routes.json").write_text(
                newer.model_dump_json()
            )  # as the next call of a does first
            await world.b.settle()
            assert world.b.shared.routes.value == 0
            assert read_routes(world.root) == newer
        await world.b.settle()
        assert world.b.shared.routes.value == 1
        assert read_routes(world.root) == CANARY

    world.run(work)


def test_routes_are_written_as_the_lease_finds_them(world: World) -> None:
    async def work(world: World) -> None:
        async with world.a.replicas.turn():
            await world.a.replicas.commit_routes(CANARY)
        old = await world.b.records.view()
        newer = CANARY.model_copy(update={"salt": "00"})
        async with world.a.replicas.turn():
            await world.a.replicas.commit_routes(newer)
        await world.b.replicas.settle(old)
        assert (read_routes(world.root), world.b.shared.routes.value) == (newer, 0)
        await world.b.settle()
        assert (read_routes(world.root), world.b.shared.routes.value) == (newer, 2)

    world.run(work)
