"""Adds, changes and withdraws items; a change is acknowledged once it is in effect."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from turret.data.vocabulary import ID_LENGTH, Id
from turret.service.errors import (
    ConflictError,
    InvalidFieldError,
    NotFoundError,
    TooLargeError,
)
from turret.service.overlay.apply_changes import can_name, exported_at
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache, in_time
from turret.service.schemas.requests import ItemBody
from turret.service.stores.contract import ItemStore
from turret.tower.bundle.bundle import Bundle

Announce = Callable[[int, float], Awaitable[list[str]]]
# Of an item's features and fields together: every process holds those of all fresh items.
ITEM_BYTES = 16_000

_NO_TOWER = (
    "version {version} has no item tower that reads features, so it can't serve items that it wasn't "
    "trained with; train with tower.item.features and export again"
)
# Every process and every later version holds the id of an item that was withdrawn; so many times the limit.
_WITHDRAWN = 10
_FULL = {  # by whether the item is new
    True: "{count} items have already been added to version {version}; train and activate a version with "
    "them, withdraw some, or raise TURRET_FRESH_ITEMS_LIMIT",
    False: "the fields of {count} items of version {version} have already been replaced; train and activate "
    "a version with these fields, or raise TURRET_FRESH_ITEMS_LIMIT",
}
_WITHDRAWN_FULL = (
    "{count} items that version {version} doesn't have are withdrawn, and each id is remembered until a "
    "version has it; put items under these ids again, or raise TURRET_FRESH_ITEMS_LIMIT"
)


class ItemWriter:
    """Changes items for the live version.

    `limit` bounds the number of fresh items, and the number of the version's own items with replaced fields;
    calls at the same time may exceed it by their number. Ten times as many may be fresh or withdrawn. The
    store has `seconds` to answer. `announce` tells all members of a change, waits until they have it, for so
    many seconds at most, and names the replicas that don't.
    """

    def __init__(
        self,
        store: ItemStore,
        overlay: ItemOverlayCache,
        limit: int,
        seconds: float,
        announce: Announce | None = None,
    ) -> None:
        self._store = store
        self._overlay = overlay
        self._limit = limit
        self._seconds = seconds
        self._tell = announce

    async def put(self, bundle: Bundle, item: str, body: ItemBody) -> dict[str, Any]:
        """Store an item, which is in every answer that begins after this returns; return the answer.

        Raises RequestError, EncodingError for features that the item tower can't read, and
        ItemsUnavailableError, after which the item may or may not be stored.
        """
        _check_id(bundle, item)
        features, fields = _to_json(body)
        is_known = bundle.vocabulary.row(item) is not None
        if bundle.item_encoder is not None:
            bundle.item_encoder.encode([body.features])
        elif not is_known:
            raise ConflictError("id", item, _NO_TOWER.format(version=bundle.manifest.version))
        number = await in_time(self._put(bundle, item, features, fields), self._seconds)
        behind = await self._announce(bundle, number)
        return _answer(bundle, item, behind, vector="training" if is_known else "features")

    async def _put(self, bundle: Bundle, item: str, features: bytes, fields: bytes) -> int:
        self._check_room(bundle, item, await self._overlay.of(bundle))
        return await self._store.put(item, features, fields, _now(bundle))

    async def withdraw(self, bundle: Bundle, item: str) -> dict[str, Any]:
        """Withdraw an item, which is in no answer that begins after this returns; return the answer.

        Raises NotFoundError for an item that never existed, ItemsUnavailableError like `put`.
        """
        fresh = await self._overlay.of(bundle)
        if fresh.row(item) is None and item not in fresh.withdrawn_ids:
            message = f"version {bundle.manifest.version} has no such item, and none was added; check the id"
            raise NotFoundError("id", item, message)
        number = await in_time(self._store.withdraw(item, _now(bundle)), self._seconds)
        behind = await self._announce(bundle, number)
        return _answer(bundle, item, behind, withdrawn=True)

    async def _announce(self, bundle: Bundle, number: int) -> list[str]:
        """Bring a change into effect everywhere; return the replicas that are behind."""
        await self._overlay.changed(bundle, number)
        return await self._tell(number, self._seconds) if self._tell else []

    def _check_room(self, bundle: Bundle, item: str, fresh: FreshItems) -> None:
        """Raise ConflictError for one item more than the limits allow."""
        row = bundle.vocabulary.row(item)
        if item in fresh.positions if row is None else row in fresh.replaced:
            return  # it adds none
        message, count = _FULL[row is None], len(fresh) if row is None else len(fresh.replaced)
        is_full = count >= self._limit
        if not is_full and row is None and item not in fresh.withdrawn_ids:
            # Each new item may be withdrawn, and a withdrawal is never refused.
            message, count = _WITHDRAWN_FULL, len(fresh.withdrawn_ids)
            is_full = len(fresh) + count >= _WITHDRAWN * self._limit
        if is_full:
            raise ConflictError("id", item, message.format(count=count, version=bundle.manifest.version))


def _check_id(bundle: Bundle, item: str) -> None:
    if not 1 <= len(item) <= ID_LENGTH:
        raise InvalidFieldError("id", item, f"send an id of 1 to {ID_LENGTH} characters")
    if not can_name(bundle.vocabulary, item):
        message = f"version {bundle.manifest.version} has integer ids; send an integer id"
        raise InvalidFieldError("id", item, message)


def _to_json(body: ItemBody) -> tuple[bytes, bytes]:
    features = _json(body.features)
    fields = features if body.fields is None else _json(body.fields)
    if len(features) + len(fields) > ITEM_BYTES:
        message = f"features and fields together exceed {ITEM_BYTES} bytes; leave some fields out"
        raise TooLargeError("fields", None, message)
    return features, fields


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _now(bundle: Bundle) -> int:
    """Milliseconds since 1970, not before the live version was exported, even if clocks differ."""
    return max(time.time_ns() // 1_000_000, exported_at(bundle))


def _answer(bundle: Bundle, item: str, behind: list[str], **facts: Any) -> dict[str, Any]:
    shown: Id = int(item) if bundle.vocabulary.kind == "integer" else item
    late = {"replicas_behind": behind} if behind else {}
    return {"version": bundle.manifest.version, "id": shown, **facts, **late}
