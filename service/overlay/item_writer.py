"""Adds, changes and withdraws items; a change is acknowledged once it is in effect."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from turret.data.vocabulary import ID_LENGTH, Id
from turret.service.errors import BodyError, ConflictError, InvalidFieldError, NotFoundError
from turret.service.overlay.fresh import FreshItems, can_name, exported_at, is_valid
from turret.service.overlay.item_overlay_cache import ItemOverlayCache, in_time
from turret.service.schemas.requests import ItemBody, ItemPatchBody
from turret.service.stores.contract import Change, ItemStore
from turret.tower.bundle.bundle import Bundle

Announce = Callable[[int, float], Awaitable[list[str]]]
# Of an item's features and fields together: every process holds those of all fresh items.
ITEM_BYTES = 48_000
# Every process and every later version holds the id of an item that was withdrawn; so many times the limit.
_WITHDRAWN = 10


class ItemWriter:
    """Changes items for the live version.

    `limit` bounds the number of fresh items, and the number of the version's own items with replaced fields;
    calls at the same time may exceed it by their number. Ten times as many may be fresh or withdrawn. The
    store has `seconds` to answer. `announce` tells all members of a change, waits until they have it, for so
    many seconds at most, and names the replicas that don't.
    """

    def __init__(
        self, store: ItemStore, overlay: ItemOverlayCache, limit: int, seconds: float, announce: Announce
    ) -> None:
        self._store = store
        self._overlay = overlay
        self._limit = limit
        self._seconds = seconds
        self._announce = announce

    async def put(self, bundle: Bundle, item: str, body: ItemBody) -> dict[str, Any]:
        """Store an item, which is in every answer that begins after this returns; return the answer.

        Raises RequestError, EncodingError for features that the item tower can't read, and
        ItemsUnavailableError, after which the item may or may not be stored.
        """
        if not 1 <= len(item) <= ID_LENGTH:
            raise InvalidFieldError("id", item, f"send an id of 1 to {ID_LENGTH} characters")
        is_known = bundle.vocabulary.row(item) is not None
        if not can_name(bundle.vocabulary, item):
            message = f"version {bundle.manifest.version} has integer ids; send an integer id"
            raise InvalidFieldError("id", item, message)
        encoder = bundle.item_encoder
        # Vectors are no fields that people or filters look at.
        hidden = {one.name for one in encoder.features if one.kind == "vector"} if encoder else set()
        shown = {name: value for name, value in body.features.items() if name not in hidden}
        parts = _stored(body.features, shown if body.fields is None else body.fields)
        _check_features(bundle, item, body.features)

        async def put() -> int:
            self._check_room(bundle, item, await self._overlay.of(bundle))
            return await self._store.put(item, *parts, _now(bundle))

        return await self._done(bundle, item, put(), vector="training" if is_known else "features")

    async def patch(self, bundle: Bundle, item: str, body: ItemPatchBody) -> dict[str, Any]:
        """Change an item in part, so that no other change at the same time is lost; return the answer.

        Raises NotFoundError for an item that neither the version has nor somebody put, ConflictError for one
        that is withdrawn, and what `put` raises.
        """

        async def patch() -> int:
            number = 0
            while not number:  # each turn but the first follows a change of the item by somebody else
                last = await self._store.last(item)
                features, fields = _present(bundle, item, last)
                _check_features(bundle, item, body.features)
                parts = _stored(_merged(features, body.features), _merged(fields, body.fields))
                self._check_room(bundle, item, await self._overlay.of(bundle))
                after = last.number if last else 0
                number = await self._store.put(item, *parts, _now(bundle), after)
            return number

        is_known = bundle.vocabulary.row(item) is not None
        return await self._done(bundle, item, patch(), vector="training" if is_known else "features")

    async def withdraw(self, bundle: Bundle, item: str) -> dict[str, Any]:
        """Withdraw an item, which is in no answer that begins after this returns; return the answer.

        Raises NotFoundError for an item that never existed, ItemsUnavailableError like `put`.
        """
        fresh = await self._overlay.of(bundle)
        if fresh.row(item) is None and item not in fresh.withdrawn_ids:
            message = f"version {bundle.manifest.version} has no such item, and none was added; check the id"
            raise NotFoundError("id", item, message)
        return await self._done(bundle, item, self._store.withdraw(item, _now(bundle)), withdrawn=True)

    async def _done(
        self, bundle: Bundle, item: str, change: Awaitable[int], **facts: object
    ) -> dict[str, Any]:
        """Make a change, bring it into effect everywhere, and return the answer with its `facts`."""
        number = await in_time(change, self._seconds)
        await self._overlay.changed(bundle, number)
        behind = await self._announce(number, self._seconds)
        shown: Id = int(item) if bundle.vocabulary.kind == "integer" else item
        late = {"replicas_behind": behind} if behind else {}
        return {"version": bundle.manifest.version, "id": shown, **facts, **late}

    def _check_room(self, bundle: Bundle, item: str, fresh: FreshItems) -> None:
        """Raise ConflictError for one item more than the limits allow."""
        row, version = bundle.vocabulary.row(item), bundle.manifest.version
        if item in fresh.positions if row is None else row in fresh.replaced:
            return  # it adds none
        if row is not None:
            count, limit = len(fresh.replaced), self._limit
            full = f"the fields of {count} items of version {version} have already been replaced; "
            remedy = "train and activate a version with these fields"
        elif len(fresh) >= self._limit or item in fresh.withdrawn_ids:
            count, limit = len(fresh), self._limit
            full = f"{count} items have already been added to version {version}; "
            remedy = "train and activate a version with them, withdraw some"
        else:  # each new item may be withdrawn, and a withdrawal is never refused
            count, limit = len(fresh) + len(fresh.withdrawn_ids), _WITHDRAWN * self._limit
            full = (
                f"{len(fresh.withdrawn_ids)} items that version {version} doesn't have are withdrawn, and "
                "each id is remembered until a version has it; "
            )
            remedy = "put items under these ids again"
        if count >= limit:
            raise ConflictError("id", item, f"{full}{remedy}, or raise TURRET_FRESH_ITEMS_LIMIT")


def _check_features(bundle: Bundle, item: str, features: dict[str, Any]) -> None:
    """Raise EncodingError for features that don't fit the tower, ConflictError where a new item has none."""
    if bundle.item_encoder is not None:
        bundle.item_encoder.encode([features])
    elif bundle.vocabulary.row(item) is None:
        message = (
            f"version {bundle.manifest.version} has no item tower that reads features, so it can't serve "
            "items that it wasn't trained with; train with tower.item.features and export again"
        )
        raise ConflictError("id", item, message)


def _present(bundle: Bundle, item: str, last: Change | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The features and fields of an item that a change in part begins with; `last` is its last change.

    The features of an item that was never put are those among its fields that the item tower reads, for
    versions that don't have the item.
    """
    row = bundle.vocabulary.row(item)
    if last is not None and last.is_withdrawn:
        raise ConflictError("id", item, "this item is withdrawn; PUT it to serve it again")
    of_bundle = None if row is None else bundle.catalog.json_of(row)
    if last is not None and is_valid(last):
        is_newer = of_bundle is None or last.time >= exported_at(bundle)
        fields = last.fields if is_newer else of_bundle
        return orjson.loads(last.features or b"{}"), orjson.loads(fields or b"{}")
    if of_bundle is None:
        message = f"version {bundle.manifest.version} has no such item, and none was added; PUT it"
        raise NotFoundError("id", item, message)
    shown = orjson.loads(of_bundle)
    return bundle.item_encoder.readable(shown) if bundle.item_encoder else {}, shown


def _merged(present: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) of one level: values are replaced whole."""
    removed = {name for name, value in patch.items() if value is None}
    return {name: value for name, value in (present | patch).items() if name not in removed}


def _stored(features: dict[str, Any], fields: dict[str, Any]) -> tuple[bytes, bytes]:
    """Features and fields as they are stored. Raises BodyError for more than ITEM_BYTES."""
    parts = _json(features), _json(fields)
    if len(parts[0]) + len(parts[1]) > ITEM_BYTES:
        message = f"features and fields together exceed {ITEM_BYTES} bytes; leave some fields out"
        raise BodyError("fields", None, message, status=413)
    return parts


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _now(bundle: Bundle) -> int:
    """Milliseconds since 1970, not before the live version was exported, even if clocks differ."""
    return max(time.time_ns() // 1_000_000, exported_at(bundle))
