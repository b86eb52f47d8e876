"""The overlays of the loaded bundles, kept up to date with the item store."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from turret.service.errors import ItemsUnavailableError
from turret.service.overlay.fresh import FreshItems, apply_changes, empty_overlay
from turret.service.stores.contract import CHANGES_PAGE, ItemStore
from turret.tower.bundle.bundle import Bundle

_log = logging.getLogger("turret.items")

Result = TypeVar("Result")


async def in_time(call: Awaitable[Result], seconds: float) -> Result:
    """Await a call to the item store. Raises ItemsUnavailableError if it takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        raise ItemsUnavailableError(f"item store timed out after {seconds:g} seconds") from None


class _Entry(NamedTuple):
    fresh: FreshItems
    number: int  # the `number` of the cache before the store was read
    is_behind: bool = False


class ItemOverlayCache:
    """Holds the overlay of every loaded bundle.

    `number` is the number of the last change that this worker has heard of. When it differs from that of an
    overlay, the next answer reads the store, so answers have each acknowledged change of all members. `watch`
    sees all other changes within `POLL_SECONDS`. The store has `seconds` to answer for each page, and an
    answer waits `patience` seconds. `was_read`: whether an overlay has been read to its end; until then
    withdrawn items may be recommended.
    """

    POLL_SECONDS = 1.0
    PAGE = CHANGES_PAGE

    def __init__(self, store: ItemStore, seconds: float = 1.0, patience: float = 1.0) -> None:
        self.number = 0
        self._store = store
        self._patience = patience
        self._seconds = seconds
        self._entries: WeakKeyDictionary[Bundle, _Entry] = WeakKeyDictionary()
        self._reading = asyncio.Lock()
        self.was_read = False

    def last_read(self, bundle: Bundle) -> FreshItems:
        """The overlay of a bundle as last read; empty if never read."""
        entry = self._entries.get(bundle)
        return empty_overlay(bundle) if entry is None else entry.fresh

    async def of(self, bundle: Bundle, again: bool = False) -> FreshItems:
        """The overlay of a bundle, or the previous overlay if the store can't be read.

        Only the first call after a change reads the store, unless it is to be read `again`. It is called
        before a bundle goes live, as the bundle's item tower has to encode all fresh items.
        """
        try:
            return await self._read(bundle, again)
        except ItemsUnavailableError:
            pass  # the entry is marked `is_behind`
        except Exception:  # some damage that no check expects
            _log.exception("the item store can't be read")
        return self.last_read(bundle)

    async def for_answer(self, bundle: Bundle) -> tuple[FreshItems, Sequence[str]]:
        """The overlay of a bundle, and the parts that an answer misses: `items` if it may lack changes.

        It is the previous overlay where the store can't be read or takes longer than `patience`.
        """
        entry = self._entries.get(bundle)
        if entry is None or entry.number != self.number:
            reading = asyncio.create_task(self.of(bundle))  # the first task reads the store, the others wait
            await asyncio.wait({reading}, timeout=self._patience)
            if not reading.done():
                return self.last_read(bundle), ("items",)
            reading.result()
            entry = self._entries.get(bundle)
        if entry is None:
            return self.last_read(bundle), ("items",)
        return entry.fresh, ("items",) if entry.is_behind else ()

    async def changed(self, bundle: Bundle, number: int) -> FreshItems:
        """Read change `number`, which this process has stored.

        Raises ItemsUnavailableError if it can't be read: a change is acknowledged once it is in effect.
        """
        self.number = max(self.number, number)
        return await self._read(bundle, again=True)

    async def watch(self) -> None:
        """Poll the store, for changes by other machines and after an outage."""
        while True:
            await asyncio.sleep(self.POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Read the store once for every loaded bundle."""
        for bundle in list(self._entries):
            await self.of(bundle, again=True)

    async def _read(self, bundle: Bundle, again: bool = False) -> FreshItems:
        async with self._reading:
            number = self.number
            entry = self._entries.get(bundle)
            if entry is not None and entry.number == number and not again:
                return entry.fresh  # the previous holder of the lock has read the store, or has tried to
            before = fresh = self.last_read(bundle)
            is_whole = False
            try:
                while not is_whole:
                    fresh, is_whole = await self._with_next_page(fresh, bundle)
            except BaseException:
                # Requests continue with the pages read so far, without each waiting for the store; the next
                # read continues from there.
                latest = max(before, fresh, key=lambda overlay: overlay.number)
                self._entries[bundle] = _Entry(latest, number, True)
                raise
            self._entries[bundle] = _Entry(fresh, number)
            self.was_read = True
            return fresh

    async def _with_next_page(self, fresh: FreshItems, bundle: Bundle) -> tuple[FreshItems, bool]:
        """Apply one page of changes; return the overlay, and whether it has all changes."""
        changes = await in_time(self._store.changes(fresh.number, self.PAGE), self._seconds)
        if fresh.number and changes.last < fresh.number:  # the store is another one, or an older copy
            return empty_overlay(bundle), False
        is_whole = len(changes.items) < self.PAGE or changes.last == fresh.number
        return await asyncio.to_thread(apply_changes, fresh, bundle, changes), is_whole
