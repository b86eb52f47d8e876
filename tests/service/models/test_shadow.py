import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turret.service.models.loaded_model import LoadedModel
from turret.service.models.model_holder import ModelHolder
from turret.service.models.shadow import Shadow
from turret.service.models.traffic_split import Route, Routes, write_routes
from turret.service.telemetry.metrics import Metrics
from turret.tower.bundle.publish import BundleContents, publish


@pytest.fixture
def model_holder(bundles: Path, make_contents: Callable[..., BundleContents]) -> ModelHolder:
    publish(bundles, make_contents("v2", seed=3))
    write_routes(bundles, Routes(shadow=Route(version="v2", share=1.0)))
    return ModelHolder(bundles)


def figures(metrics: Metrics) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if "shadow" in line and line[0] != "#"]


def test_the_shadow_answers_with_its_own_version_and_is_compared(model_holder: ModelHolder) -> None:
    metrics = Metrics()
    asked: list[str] = []

    def answer(live: LoadedModel) -> list[int | str]:
        asked.append(live.version)
        return [3, 4, 9, 9]

    async def offer() -> None:
        shadow = Shadow(model_holder, metrics)
        assert shadow.wants()
        shadow.offer([1, 2, 3, 4], answer)
        while not asked or "answered" not in str(figures(metrics)):
            await asyncio.sleep(0.01)
        await shadow.close()

    asyncio.run(asyncio.wait_for(offer(), 10))
    assert asked == ["v2"]
    assert "turret_shadow_overlap 0.5" in figures(metrics)


@pytest.mark.nightly
def test_more_than_can_wait_is_dropped_and_nobody_waits(model_holder: ModelHolder) -> None:
    metrics = Metrics()

    def slowly(_: LoadedModel) -> list[int | str]:
        time.sleep(0.05)
        raise ValueError("and then it fails")

    async def offer() -> None:
        shadow = Shadow(model_holder, metrics, limit=2)
        begun = time.monotonic()
        for _ in range(5):
            shadow.offer([1], slowly)
        assert time.monotonic() - begun < 0.04
        while "failed" not in str(figures(metrics)):
            await asyncio.sleep(0.01)
        await shadow.close()

    asyncio.run(asyncio.wait_for(offer(), 10))
    assert 'turret_shadow_answers_total{outcome="dropped"} 3.0' in figures(metrics)


def test_requests_beyond_the_limit_are_dropped_and_a_failing_one_ends_nothing(
    model_holder: ModelHolder,
) -> None:
    """Two of four wait; the first of them fails, and the other is answered."""
    metrics = Metrics()
    asked: list[str] = []

    def answer(live: LoadedModel) -> list[int | str]:
        asked.append(live.version)
        if len(asked) == 1:
            raise RuntimeError("the shadow fails")
        return [1]

    def counted(outcome: str, count: int) -> bool:
        return f'turret_shadow_answers_total{{outcome="{outcome}"}} {count}.0' in figures(metrics)

    async def offer() -> None:
        shadow = Shadow(model_holder, metrics, limit=2)
        for _ in range(4):
            shadow.offer([1], answer)
        while not counted("answered", 1):
            await asyncio.sleep(0.01)
        await shadow.close()

    asyncio.run(asyncio.wait_for(offer(), 10))
    assert counted("dropped", 2)
    assert counted("failed", 1)


def test_without_a_shadow_nothing_is_wanted(bundles: Path) -> None:
    shadow = Shadow(ModelHolder(bundles), Metrics())
    assert not shadow.wants()
    shadow.offer([1], lambda _: [1])
    asyncio.run(shadow.close())
