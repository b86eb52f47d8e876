import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from turret.service.errors import ItemsUnavailableError
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.shared_state import SharedState
from turret.service.stores.contract import Change, Changes
from turret.service.stores.memory import MemoryItems
from turret.service.stores.sqlite.items import SqliteItems
from turret.tower.bundle.bundle import Bundle

FEATURES = b'{"n0":1.0}'


class Watched(MemoryItems):
    """Counts its reads; fails or hangs on request."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.fails = self.hangs = False

    async def changes(self, since: int) -> Changes:
        self.reads += 1
        await asyncio.sleep(60 if self.hangs else 0)
        if self.fails:
            raise ItemsUnavailableError("the store is away")
        return await super().changes(since)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_an_item_is_in_the_overlay_after_its_change(bundle: Bundle) -> None:
    async def work() -> None:
        store = Watched()
        overlay = ItemOverlayCache(store)
        assert overlay.current(bundle) is None
        assert len(await overlay.of(bundle)) == 0
        number = await store.put("900", FEATURES, b"{}", 0)
        assert len((await overlay.changed(bundle, number)).ids) == 1
        assert (await overlay.of(bundle)).row("900") == 60

    run(work)


def test_a_change_during_a_read_is_read_by_the_next_request(bundle: Bundle) -> None:
    """The overlay is as new as the generation before the read, not as that after it."""
    generation = SharedState().items

    class Overtaken(MemoryItems):
        async def changes(self, since: int) -> Changes:
            found = await super().changes(since)
            if not since and not found.last:
                await self.put("900", FEATURES, b"{}", 0)
                generation.bump()
            return found

    async def work() -> None:
        overlay = ItemOverlayCache(Overtaken(), generation)
        assert len(await overlay.of(bundle)) == 0
        assert overlay.current(bundle) is None
        assert len(await overlay.of(bundle)) == 1
        assert overlay.current(bundle) is not None

    run(work)


def test_it_is_read_once_for_many_requests(bundle: Bundle) -> None:
    async def work() -> None:
        store = Watched()
        overlay = ItemOverlayCache(store)
        found = await asyncio.gather(*(overlay.of(bundle) for _ in range(50)))
        assert store.reads == 1
        assert all(one is found[0] for one in found)
        assert overlay.current(bundle) is found[0]

    run(work)


def test_a_change_of_one_process_is_in_the_next_look_of_another(bundle: Bundle, tmp_path: Path) -> None:
    """They share the file and the number; no time has to pass."""

    async def work() -> None:
        board = SharedState().items
        stores = [SqliteItems(tmp_path / "items.sqlite") for _ in range(2)]
        one, other = (ItemOverlayCache(store, board) for store in stores)
        await other.of(bundle)
        for number in range(5):
            await one.changed(bundle, await stores[0].put(str(900 + number), FEATURES, b"{}", 0))
            assert other.current(bundle) is None
            assert len(await other.of(bundle)) == number + 1
        for store in stores:
            await store.close()

    run(work)


def test_another_machine_sees_it_when_it_polls(bundle: Bundle) -> None:
    async def work() -> None:
        store = MemoryItems()
        here, there = ItemOverlayCache(store), ItemOverlayCache(store)
        await there.of(bundle)
        await here.changed(bundle, await store.put("900", FEATURES, b"{}", 0))
        assert len(await there.of(bundle)) == 0
        await there.poll()
        assert len(await there.of(bundle)) == 1

    run(work)


def test_it_polls_by_itself(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ItemOverlayCache, "POLL_SECONDS", 0.01)

    async def work() -> None:
        store = MemoryItems()
        overlay = ItemOverlayCache(store)
        await overlay.of(bundle)
        watching = asyncio.create_task(overlay.watch())
        await store.put("900", FEATURES, b"{}", 0)
        async with asyncio.timeout(10):
            while not len(await overlay.of(bundle)):
                await asyncio.sleep(0.01)
        watching.cancel()

    run(work)


def test_an_unavailable_store_delays_no_answer(bundle: Bundle) -> None:
    """Answers use the previous overlay without a read each; a change is not acknowledged."""

    async def work() -> None:
        store = Watched()
        overlay = ItemOverlayCache(store)
        await store.put("900", FEATURES, b"{}", 0)
        await overlay.of(bundle)
        store.fails = True
        with pytest.raises(ItemsUnavailableError):
            await overlay.changed(bundle, await store.withdraw("901", 0))
        assert (await overlay.within(bundle, 1.0))[1] is True
        reads = store.reads
        for _ in range(10):
            assert (await overlay.of(bundle)).row("900") == 60
        assert store.reads == reads
        store.fails = False
        await store.withdraw("900", 1)
        await overlay.poll()
        assert (await overlay.within(bundle, 1.0))[1] is False
        assert (await overlay.of(bundle)).row("900") is None

    run(work)


def test_a_change_is_read_though_another_has_tried_and_failed(bundle: Bundle) -> None:
    async def work() -> None:
        store = Watched()
        overlay = ItemOverlayCache(store)
        await overlay.of(bundle)
        number = await store.put("900", FEATURES, b"{}", 0)
        store.fails = True
        tried = asyncio.create_task(overlay.changed(bundle, number))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(overlay.changed(bundle, number))
        await asyncio.sleep(0)
        store.fails = False
        results = await asyncio.gather(tried, waiting, return_exceptions=True)
        assert all(isinstance(one, ItemsUnavailableError) or len(one) == 1 for one in results)  # type: ignore[arg-type]

    run(work)


@pytest.mark.nightly
def test_a_store_that_hangs_is_waited_for_so_long(bundle: Bundle) -> None:
    async def work() -> None:
        store = Watched()
        store.hangs = True
        overlay = ItemOverlayCache(store, seconds=0.05)
        begun = time.monotonic()
        await asyncio.gather(*(overlay.of(bundle) for _ in range(20)))
        assert time.monotonic() - begun < 1.0
        assert (await overlay.within(bundle, 1.0))[1] is True
        with pytest.raises(ItemsUnavailableError, match=r"0\.05 seconds"):
            await overlay.changed(bundle, 1)

    run(work)


def test_an_older_copy_of_the_store_is_read_from_its_beginning(bundle: Bundle) -> None:
    async def work() -> None:
        store = MemoryItems()
        overlay = ItemOverlayCache(store)
        for number in range(5):
            await store.put(str(900 + number), FEATURES, b"{}", 0)
        assert len(await overlay.of(bundle)) == 5
        store._last, store._changes = 1, {"777": Change("777", 1, 0, FEATURES, b"{}")}
        await overlay.poll()
        assert (await overlay.of(bundle)).ids == ["777"]

    run(work)


def test_each_bundle_has_its_own(root: Path, bundle: Bundle) -> None:
    """The vectors are of its item tower; a bundle that is gone leaves nothing behind."""

    async def work() -> None:
        store = MemoryItems()
        overlay = ItemOverlayCache(store)
        await store.put("159", FEATURES, b"{}", 0)
        names = Bundle.open(root / "names")
        assert len(await overlay.of(bundle)) == 0
        assert (await overlay.of(names)).row("159") == 40
        await overlay.changed(bundle, await store.withdraw("159", 0))
        assert (await overlay.of(names)).row("159") is None
        del names
        gc.collect()
        assert len(overlay._entries) == 1

    run(work)


def test_a_thousand_are_made_ready_beside_the_requests(bundle: Bundle) -> None:
    async def work() -> None:
        store = MemoryItems()
        for number in range(1000):
            await store.put(str(1000 + number), FEATURES, b"{}", 0)
        overlay = ItemOverlayCache(store)
        ready = asyncio.create_task(overlay.of(bundle))
        ticks = 0
        while not ready.done():
            await asyncio.sleep(0)
            ticks += 1
        assert len(ready.result()) == 1000
        assert ticks > 3, "the loop went on"

    run(work)


def test_looking_costs_next_to_nothing(bundle: Bundle) -> None:
    """2 microseconds are the aim; ten times that would show a look at the store."""

    async def work() -> None:
        overlay = ItemOverlayCache(MemoryItems())
        await overlay.of(bundle)
        best = min(_seconds_of(overlay, bundle) for _ in range(5))
        assert best < 20e-6

    run(work)


def _seconds_of(overlay: ItemOverlayCache, bundle: Bundle, count: int = 1000) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        overlay.current(bundle)
    return (time.perf_counter() - begun) / count


@pytest.mark.nightly
def test_a_slow_store_is_waited_for_only_so_long_and_by_one(bundle: Bundle) -> None:
    """Requests use the previous overlay and say so; the read continues."""

    async def work() -> None:
        store = Watched()
        overlay = ItemOverlayCache(store, seconds=0.5)
        assert [(len(fresh), lacks) for fresh, lacks in [await overlay.within(bundle, 1.0)]] == [(0, False)]
        await overlay.changed(bundle, await store.put("900", FEATURES, b"{}", 0))
        store.hangs = True
        overlay._generation.bump()
        reads = store.reads
        begun = time.monotonic()
        found = await asyncio.gather(*(overlay.within(bundle, 0.05) for _ in range(50)))
        assert time.monotonic() - begun < 0.4
        assert {(len(fresh), lacks) for fresh, lacks in found} == {(1, True)}
        await asyncio.sleep(0.6)
        assert store.reads == reads + 1
        fresh, lacks = await overlay.within(bundle, 0.05)  # nobody waits for it any more
        assert (len(fresh), lacks) == (1, True)
        store.hangs = False
        await overlay.poll()
        assert (await overlay.within(bundle, 0.05))[1] is False

    run(work)
