"""Adds, changes and withdraws items; a change is acknowledged once it is in effect."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from turret.service.overlay.item_edits import EditPlan, ItemEdit, Refused
from turret.service.overlay.item_overlay_cache import ItemOverlayCache, in_time
from turret.service.stores.contract import ItemStore
from turret.tower.bundle.bundle import Bundle

Announce = Callable[[int, float], Awaitable[list[str]]]
# So many edits are planned in the event loop, in a millisecond or two.
_FEW = 8
# So many are in effect at once: answers wait until an overlay has the changes that its process has heard of.
_AT_ONCE = 1_000


class Written(NamedTuple):
    """The refusal of each edit, None where it is in effect, and the replicas that don't have the rest yet."""

    refused: list[Refused | None]
    replicas_behind: list[str]


class ItemWriter:
    """Changes items for the live version.

    `limit` bounds the bytes of the overlay; calls at the same time may exceed it by their own. The store has
    `seconds` to answer. `announce` tells all members of a change, waits until they have it, for so many
    seconds at most, and names the replicas that don't.
    """

    def __init__(
        self, store: ItemStore, overlay: ItemOverlayCache, limit: int, seconds: float, announce: Announce
    ) -> None:
        self._store = store
        self._overlay = overlay
        self._limit = limit
        self._seconds = seconds
        self._announce = announce

    async def write(self, bundle: Bundle, edits: Sequence[ItemEdit]) -> Written:
        """Store the edits that are not refused, which are in every answer that begins after this returns.

        They are applied in their order, and a change in part loses no other that is made at the same time.
        Raises ItemsUnavailableError, after which any of them may be stored.
        """
        refused: list[Refused | None] = []
        behind: list[str] = []
        for first in range(0, len(edits), _AT_ONCE):
            part = await self._write(bundle, edits[first : first + _AT_ONCE])
            refused += part.refused
            if None in part.refused:  # those that were behind before have these changes, or are behind still
                behind = part.replicas_behind
        return Written(refused, behind)

    async def _write(self, bundle: Bundle, edits: Sequence[ItemEdit]) -> Written:
        refused: dict[int, Refused] = {}
        waiting, number = [*range(len(edits))], 0
        while waiting:  # each turn but the first follows changes of the same items by somebody else
            fresh = await self._overlay.of(bundle)
            plan = EditPlan(bundle, fresh, self._limit, [edits[place] for place in waiting])
            items = plan.changed_in_part
            last = await in_time(self._store.last(items), self._seconds) if items else []
            known = dict(zip(items, last, strict=True))
            is_short = len(waiting) <= _FEW
            changes = plan.changes(known) if is_short else await asyncio.to_thread(plan.changes, known)
            refused |= {waiting[place]: error for place, error in plan.refused.items()}
            numbers = await in_time(self._store.change(changes), self._seconds) if changes else []
            number = max([number, *numbers])
            overtaken = {change.item for change, at in zip(changes, numbers, strict=True) if not at}
            waiting = [place for place in waiting if edits[place].item in overtaken and place not in refused]
        behind = []
        if number:
            await self._overlay.changed(bundle, number)
            behind = await self._announce(number, self._seconds)
        return Written([refused.get(place) for place in range(len(edits))], behind)
