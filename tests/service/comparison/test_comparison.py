"""The workers of a service compare one version, and hold it no longer than it is used."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from turret.service.comparison import comparison as module
from turret.service.comparison.comparison import Comparison
from turret.service.components import Components
from turret.service.errors import ConflictError, NotReadyError
from turret.service.models.loaded_model import LoadedModel
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.shared_state import SharedState
from turret.service.stores.contract import Event
from turret.service.telemetry.metrics import FAMILIES
from turret.service.telemetry.table import Table
from turret.service.worker_context import WorkerContext
from turret.tower.bundle.publish import BundleContents, publish

REQUEST = RecommendRequest(history=[120], k=5)


@pytest.fixture
def settings(bundles: Path, make_contents: Callable[..., BundleContents]) -> Settings:
    publish(bundles, make_contents("v2", seed=1))
    publish(bundles, make_contents("v3", seed=2))
    return Settings(bundles=bundles, store="memory://", admin_key="a-key-of-sixteen")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)


@asynccontextmanager
async def workers(settings: Settings, count: int = 1) -> AsyncIterator[list[Components]]:
    """The parts of several workers of one service, in one process."""
    shared_state, table = SharedState(count), Table(FAMILIES, count)
    async with AsyncExitStack() as stack:
        opened = []
        for number in range(count):
            components = Components(settings, WorkerContext(shared_state, number, table=table))
            stack.push_async_callback(components.close)
            opened.append(components)
        yield opened


def held(comparison: Comparison) -> str | None:
    model: LoadedModel | None = comparison._model
    return model.version if model else None


async def released(comparison: Comparison) -> None:
    async with asyncio.timeout(10):
        while held(comparison):
            await asyncio.sleep(0.01)


def test_a_worker_opens_what_another_was_asked_to_compare(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate checks it once."""

    async def compare() -> None:
        async with workers(settings, 2) as (first, second):
            await first.comparison.open("v2")
            monkeypatch.setattr(second.activator, "check", None)
            answer = await second.comparison.recommend(REQUEST, None)
            assert (held(first.comparison), held(second.comparison)) == ("v2", "v2")
            assert answer["other"]["version"] == "v2"
            assert second.comparison.end(None)["version"] is None
            await released(first.comparison)
            with pytest.raises(ConflictError, match="open one with"):
                await first.comparison.catalog(None)

    asyncio.run(compare())


def test_a_worker_that_is_asked_for_another_version_takes_all_with_it(settings: Settings) -> None:
    async def compare() -> None:
        async with workers(settings, 2) as (first, second):
            await first.comparison.open("v2")
            await second.comparison.recommend(REQUEST, "v3")
            await released(first.comparison)
            assert (await first.comparison.recommend(REQUEST, None))["other"]["version"] == "v3"

    asyncio.run(compare())


def test_it_ends_by_itself_but_not_while_it_is_used(settings: Settings) -> None:
    async def compare() -> None:
        brief = settings.model_copy(update={"comparison_seconds": 0.5})
        async with workers(brief, 2) as (first, second):
            await first.comparison.open("v2")
            for _ in range(7):
                await asyncio.sleep(0.1)
                await second.comparison.recommend(REQUEST, None)
            assert held(first.comparison) == "v2"
            await released(first.comparison)
            await released(second.comparison)
            assert first.comparison.state() == {"version": None, "live": "v1"}

    asyncio.run(compare())


def test_a_version_that_has_become_live_is_released(settings: Settings) -> None:
    async def compare() -> None:
        async with workers(settings) as (worker,):
            await worker.comparison.open("v2")
            await worker.activator.activate("v2", force=True)
            await released(worker.comparison)
            assert worker.comparison.state() == {"version": None, "live": "v2"}

    asyncio.run(compare())


def test_a_refused_version_leaves_the_open_one(settings: Settings) -> None:
    """It is opened again with the next call."""
    path = settings.bundles / "v3" / "index.faiss"
    path.chmod(0o644)
    path.write_bytes(b"")

    async def compare() -> None:
        async with workers(settings) as (worker,):
            await worker.comparison.open("v2")
            with pytest.raises(ConflictError, match=r"index\.faiss"):
                await worker.comparison.open("v3")
            assert (await worker.comparison.recommend(REQUEST, None))["other"]["version"] == "v2"

    asyncio.run(compare())


def test_a_canary_is_not_opened_a_second_time(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    write_routes(settings.bundles, Routes(canary=Route(version="v2", share=0.5)))

    async def compare() -> None:
        async with workers(settings) as (worker,):
            monkeypatch.setattr(worker.activator, "check", None)
            await worker.comparison.open("v2")
            assert worker.comparison._model is worker.model_holder.traffic.canary

    asyncio.run(compare())


def test_no_version_is_opened_during_an_activation(settings: Settings) -> None:
    """A worker's second check would end the first one."""

    async def compare() -> None:
        async with workers(settings) as (worker,):
            async with worker.activator._one_at_a_time:
                with pytest.raises(NotReadyError, match="an activation or another check is in progress"):
                    await worker.comparison.open("v2")
            assert (await worker.comparison.open("v2"))["version"] == "v2"

    asyncio.run(compare())


def test_calls_wait_for_each_other_and_not_too_many(settings: Settings) -> None:
    async def compare() -> None:
        async with workers(settings) as (worker,):
            await worker.comparison.open("v2")
            calls = [worker.comparison.recommend(REQUEST, None) for _ in range(20)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            refused = [answer for answer in found if isinstance(answer, NotReadyError)]
            assert len(refused) == 20 - module._MOST_WAITING
            assert all(isinstance(answer, dict | NotReadyError) for answer in found)
            assert (await worker.comparison.catalog(None))["kept"] == 60

    asyncio.run(compare())


def test_both_versions_answer_the_same_stored_history(settings: Settings) -> None:
    async def compare() -> None:
        async with workers(settings) as (worker,):
            await worker.histories.append([Event(str(i), "me", 100 + i, 1000 + i) for i in range(40)])
            await worker.comparison.open("v2")
            stored = await worker.comparison.recommend(RecommendRequest(user_id="me", k=5), None)
            history: list[int | str] = [100 + i for i in range(40)]
            given = await worker.comparison.recommend(RecommendRequest(history=history, k=5), None)
            assert stored["moves"] == given["moves"]

    asyncio.run(compare())
