"""The limit of fresh items holds under concurrent writes."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.stores import ADDRESSES, Opening
from tests.support.item_towers import placed
from tests.support.redis_server import sweep
from turret.service.errors import ConflictError
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.item_writer import ItemWriter
from turret.service.schemas.items import ItemBody
from turret.service.stores.contract import ItemStore
from turret.service.stores.memory import MemoryItems
from turret.tower.bundle.bundle import Bundle

BODY = ItemBody(features=placed(np.eye(8, dtype=np.float32)[0]))
LIMIT = 10


@pytest.fixture(params=ADDRESSES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[ItemStore]]:
    """One store, opened by three workers; one of memory can't be, and is theirs together."""
    address = ADDRESSES[request.param](tmp_path)
    opening = Opening()
    opened = [opening.items(address) for _ in range(3)]
    stores = opened[:1] * 3 if request.param == "memory" else opened
    yield stores
    opening.close()
    sweep(address)


async def put_all(workers: list[ItemWriter], bundle: Bundle, items: list[str]) -> Counter[str]:
    async def put(worker: ItemWriter, item: str) -> str:
        try:
            await worker.put(bundle, item, BODY)
        except ConflictError:
            return "refused"
        return "put"

    calls = (put(workers[place % 3], item) for place, item in enumerate(items))
    return Counter(await asyncio.gather(*calls))


@pytest.mark.parametrize("first", [900, 100])
def test_no_more_than_the_limit_are_put_by_many_at_once(
    stores: list[ItemStore], bundle: Bundle, first: int
) -> None:
    """New items, and items of the bundle with new fields, by workers that see each other's changes late."""

    async def work() -> None:
        overlays = [ItemOverlayCache(store) for store in stores]
        workers = [
            ItemWriter(store, overlay, LIMIT, 20.0) for store, overlay in zip(stores, overlays, strict=True)
        ]
        items = [str(first + number) for number in range(40)]
        assert await put_all(workers, bundle, items) == {"put": LIMIT, "refused": 30}
        held = await overlays[0].reread(bundle)
        assert len(held) + len(held.replaced) == LIMIT
        there = list(held.ids) + [str(bundle.vocabulary.id(row)) for row in held.replaced]
        assert await put_all(workers, bundle, [*there, *there]) == {"put": 2 * LIMIT}
        await workers[1].withdraw(bundle, there[0])
        assert await put_all(workers, bundle, items) == {"put": LIMIT, "refused": 30}
        for store in {id(one): one for one in stores}.values():
            await store.close()

    asyncio.run(work())


def test_a_limit_that_was_lowered_keeps_what_is_there(bundle: Bundle) -> None:
    async def work() -> None:
        store = MemoryItems()
        before, after = (ItemWriter(store, ItemOverlayCache(store), limit, 5.0) for limit in (3, 1))
        for item in ("900", "901", "902"):
            await before.put(bundle, item, BODY)
        await after.put(bundle, "901", BODY)
        with pytest.raises(ConflictError, match="3 items have already been added"):
            await after.put(bundle, "903", BODY)

    asyncio.run(work())


def test_a_change_names_the_replicas_that_are_behind(bundle: Bundle) -> None:
    """Those of a withdrawn item too; without replicas there is no such field."""
    waited: list[tuple[int, float]] = []

    async def wait(number: int, seconds: float) -> tuple[str, ...]:
        waited.append((number, seconds))
        return ("b",) if number == 1 else ()

    async def work() -> None:
        store = MemoryItems()
        worker = ItemWriter(store, ItemOverlayCache(store), LIMIT, 20.0, wait)
        assert (await worker.put(bundle, "900", BODY)).replicas_behind == ("b",)
        assert (await worker.withdraw(bundle, "900")).replicas_behind is None

    asyncio.run(work())
    assert waited == [(1, 20.0), (2, 20.0)]
