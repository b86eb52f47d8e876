"""Adds, changes and withdraws items; a change is acknowledged once it is in effect."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import orjson

from turret.data.reading.markup import plain_value
from turret.data.vocabulary import ID_LENGTH
from turret.service.errors import (
    BodyError,
    ConflictError,
    InvalidFieldError,
    NotFoundError,
    RequestError,
    without_frames,
)
from turret.service.overlay.fresh import (
    FreshItems,
    can_name,
    catalog_time,
    fields_bytes,
    is_valid,
    item_bytes,
)
from turret.service.overlay.item_overlay_cache import ItemOverlayCache, in_time
from turret.service.overlay.unknown_names import field_warning, lost_fields, lost_warning
from turret.service.stores.contract import Change, ItemStore, Late, NewChange, now_ms
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import EncodingError

Announce = Callable[[int, float], Awaitable[Late]]
Refused = RequestError | EncodingError
Result = TypeVar("Result")
# The size limit of an item's features and fields together: every process holds them for all fresh items.
ITEM_BYTES = 48_000
# Up to so many edits, of so many letters, are planned in the event loop, in a millisecond or two.
_FEW, _SHORT = 8, 8_000
# So many edits take effect at once: answers wait until an overlay has the changes known to its process.
_AT_ONCE = 1_000


class ItemEdit(NamedTuple):
    """One change of a call, like the call `method` of one item, with a body of `features` and `fields`.

    A PATCH that `restores` may change a withdrawn item. Texts are read as in the catalog. Columns of the
    catalog among the features that the item tower doesn't read are fields.
    """

    item: str
    method: Literal["PUT", "PATCH", "DELETE"] = "PUT"
    features: dict[str, Any] = {}  # noqa: RUF012 - never written
    fields: dict[str, Any] | None = None
    restores: bool = False


class Written(NamedTuple):
    """The refusal of each edit, None for an edit in effect, and the replicas that lack edits in effect.

    `warning` joins those of `lost_warning` and `field_warning` on the edits in effect.
    """

    refused: list[Refused | None]
    late: Late
    warning: str | None

    def shown(self) -> dict[str, Any]:
        """The fields of a response that name late replicas, and the warnings, if there are any."""
        warnings = [warning for warning in (self.late.warning, self.warning) if warning]
        return self.late.shown() | ({"warning": ". ".join(warnings)} if warnings else {})


class ItemWriter:
    """Changes items for the live version.

    `limit` bounds the bytes of the overlay; calls at the same time may exceed it by their bytes. The store
    has `seconds` to answer. `announce` tells all members of a change, waits until they have it, for so many
    seconds at most, and names the replicas that don't have it.
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

        Edits are applied in their order, and a PATCH loses no other change that is made at the same time.
        Raises ItemsUnavailableError, after which any of the edits may be stored.
        """
        refused: list[Refused | None] = []
        lost: dict[str, str] = {}
        late = Late([], [])
        edits = await _in_thread_unless(
            _is_short(edits), lambda: [_as_cataloged(bundle, edit) for edit in edits]
        )
        for first in range(0, len(edits), _AT_ONCE):
            number, errors = await self._store_all(bundle, edits[first : first + _AT_ONCE], lost)
            refused += errors
            if number:
                await self._overlay.changed(bundle, number)
                # Replicas that were behind before have these changes, or are behind still.
                late = await self._announce(number, self._seconds)
        new = [edit.fields for edit, error in zip(edits, refused, strict=True) if not error and edit.fields]
        unknown = await _in_thread_unless(_is_short(edits), partial(field_warning, bundle, new))
        warnings = [warning for warning in (lost_warning(lost), unknown) if warning]
        return Written(refused, late, ". ".join(warnings) or None)

    async def _store_all(
        self, bundle: Bundle, edits: Sequence[ItemEdit], lost: dict[str, str]
    ) -> tuple[int, list[Refused | None]]:
        """Store edits; return the number of the last change, 0 for none, and the refusal of each edit.

        Adds the `lost_fields` of items to `lost`.
        """
        refused: dict[int, Refused] = {}
        waiting, number = [*range(len(edits))], 0
        while waiting:  # each turn but the first follows changes of the same items by another caller
            batch = [edits[place] for place in waiting]
            fresh = await self._overlay.of(bundle)
            plan = _Plan(bundle, fresh, self._limit, batch)
            # The overlay may lack the last changes of these items, and the content of withdrawn items.
            items = list({edit.item for edit in batch if edit.method != "PUT" or not fresh.serves(edit.item)})
            last = await in_time(self._store.last(items), self._seconds) if items else []
            known = dict(zip(items, last, strict=True))
            changes = await _in_thread_unless(_is_short(batch), partial(plan.changes, known))
            refused |= {waiting[place]: error for place, error in plan.refused.items()}
            lost |= plan.lost
            numbers = await in_time(self._store.change(changes), self._seconds) if changes else []
            number = max([number, *numbers])
            overtaken = {change.item for change, at in zip(changes, numbers, strict=True) if not at}
            waiting = [place for place in waiting if edits[place].item in overtaken and place not in refused]
        return number, [refused.get(place) for place in range(len(edits))]


class _Content(NamedTuple):
    """An item's features and fields as JSON objects; a withdrawn item has those from before."""

    features: bytes = b"{}"
    fields: bytes = b"{}"
    is_withdrawn: bool = False

    def stored(self) -> tuple[bytes | None, bytes]:
        """The features and the fields of a `NewChange`."""
        if not self.is_withdrawn:
            return self.features, self.fields
        return None, b'{"features":%b,"fields":%b}' % (self.features, self.fields)

    @classmethod
    def of(cls, change: Change) -> "_Content | None":
        """Read a change of a store; None for a change that this service can't have written."""
        if not is_valid(change):
            return None
        if change.features is not None:
            return cls(change.features, change.fields or b"{}")
        kept = orjson.loads(change.fields or b"{}")
        features, fields = kept.get("features"), kept.get("fields")
        if not isinstance(features, dict) or not isinstance(fields, dict):
            return None
        return cls(_json(features), _json(fields), is_withdrawn=True)


_GONE = _Content(is_withdrawn=True)


class _Plan:
    """Makes changes from the edits to a bundle with its overlay.

    `limit` bounds the bytes of the overlay; `refused` has the errors by the places of edits, and `lost` the
    `lost_fields` of withdrawn items that are put.
    """

    def __init__(self, bundle: Bundle, fresh: FreshItems, limit: int, edits: Sequence[ItemEdit]) -> None:
        self._bundle, self._fresh, self._limit = bundle, fresh, limit
        self._taken = fresh.size
        self._edits = edits
        self.refused: dict[int, Refused] = {}
        self.lost: dict[str, str] = {}

    def changes(self, last: Mapping[str, Change | None]) -> list[NewChange]:
        """The changes to store, one for each item: the outcome of its edits in their order.

        `last` has the last changes of the items that were read from the store.
        """
        self._check_features([place for place, edit in enumerate(self._edits) if edit.method != "DELETE"])
        contents: dict[str, _Content] = {}
        for place, edit in enumerate(self._edits):
            if place in self.refused:
                continue
            try:
                before = contents.get(edit.item)
                new = self._edited(edit, before, last.get(edit.item))
                self._take(edit.item, before, new)
            except RequestError as error:
                self.refused[place] = without_frames(error)
            else:
                contents[edit.item] = new
                if edit.method == "PUT":
                    self._note_lost(edit.item, before, last.get(edit.item), new)
        now = max(now_ms(), catalog_time(self._bundle))  # even if clocks differ
        after = {item: change.number if change else 0 for item, change in last.items()}
        return [
            NewChange(item, now, *content.stored(), after.get(item)) for item, content in contents.items()
        ]

    def _edited(self, edit: ItemEdit, content: _Content | None, last: Change | None) -> _Content:
        """An item's content after an edit; `content` is that after earlier edits. Raises RequestError."""
        item, version = edit.item, self._bundle.manifest.version
        if not 1 <= len(item) <= ID_LENGTH or not can_name(self._bundle.vocabulary, item):
            if edit.method != "PUT":
                raise NotFoundError("id", item, f"version {version} can't have such an item")
            is_short = 1 <= len(item) <= ID_LENGTH
            words = "send an integer id, as this version has"
            words = words if is_short else f"send an id of 1 to {ID_LENGTH} characters"
            raise InvalidFieldError("id", item, words)
        unknown = f"version {version} has no such item, and none was added; "
        if edit.method == "DELETE":
            if self._fresh.row(item) is None and content is None and last is None:
                raise NotFoundError("id", item, f"{unknown}check the id")
            return (content or self._present(item, last) or _GONE)._replace(is_withdrawn=True)
        encoder = self._bundle.item_encoder
        features, fields = encoder.from_columns(edit.features) if encoder else edit.features, edit.fields
        if edit.method == "PATCH":
            content = content or self._present(item, last)
            if content is None:
                raise NotFoundError("id", item, f"{unknown}PUT it")
            if content.is_withdrawn and not edit.restores:
                message = 'this item is withdrawn; "withdrawn": false in a PATCH serves it again, as it was'
                raise ConflictError("id", item, message)
            features = _merged(orjson.loads(content.features), features)
            fields = _merged(orjson.loads(content.fields), fields or {})
        if encoder is None and self._bundle.vocabulary.row(item) is None:
            message = f"version {version} reads no features of items, so it serves only those of its training"
            raise ConflictError("id", item, f"{message}; train with tower.item.features and export again")
        if fields is None:
            fields = _shown(self._bundle, edit.features)
        new = _json(features), _json(fields)
        if sum(map(len, new)) > ITEM_BYTES:
            message = f"features and fields together exceed {ITEM_BYTES} bytes; leave some fields out"
            raise BodyError("fields", None, message, status=413)
        return _Content(*new)

    def _present(self, item: str, last: Change | None) -> _Content | None:
        """The content that a PATCH begins with, also of a withdrawn item; None for an unknown item.

        The features of an item that was never put are those fields that the item tower reads; versions that
        don't have the item need them.
        """
        row, encoder = self._bundle.vocabulary.row(item), self._bundle.item_encoder
        of_bundle = None if row is None else self._bundle.catalog.json_of(row)
        if last is not None and (content := _Content.of(last)):
            if of_bundle is None or last.time >= catalog_time(self._bundle):
                return content
            return content._replace(fields=of_bundle)
        if of_bundle is None:
            return None
        return _Content(_json(encoder.readable(orjson.loads(of_bundle)) if encoder else {}), of_bundle)

    def _note_lost(self, item: str, before: _Content | None, last: Change | None, new: _Content) -> None:
        had = before or (last and self._present(item, last))
        if had and had.is_withdrawn and (names := lost_fields(*map(orjson.loads, (had.fields, new.fields)))):
            self.lost[item] = names

    def _take(self, item: str, before: _Content | None, new: _Content) -> None:
        """Count the bytes of an item. Raises ConflictError where the overlay has no room for more bytes."""
        more = self._bytes(item, new) - self._bytes(item, before or self._held(item))
        if more > 0 and self._taken + more > self._limit:
            taken = f"{self._taken / 1e6:.4g} MB of the {self._limit / 1e6:.4g} MB of TURRET_OVERLAY_BYTES"
            remedy = "train a version with them, withdraw some, or raise TURRET_OVERLAY_BYTES"
            raise ConflictError("id", item, f"new, changed and withdrawn items take {taken}; {remedy}")
        self._taken += more

    def _bytes(self, item: str, content: _Content) -> int:
        if content.is_withdrawn:
            return 0
        size = fields_bytes(content.fields)
        if self._bundle.vocabulary.row(item) is None:
            size += item_bytes(item, content.features, self._bundle.manifest.dimension)
        return size

    def _held(self, item: str) -> _Content:
        """The content of the item in the overlay; features of items of the bundle don't count."""
        row, first = self._fresh.row(item), self._fresh.first_row
        if row is None or (fields := self._fresh.fields_of(row)) is None:
            return _GONE
        return _Content(self._fresh.sent[row - first].features if row >= first else b"", fields)

    def _check_features(self, places: Sequence[int]) -> None:
        """Refuse features that don't fit the item tower."""
        encoder = self._bundle.item_encoder
        if encoder is None or not places:
            return
        try:
            encoder.encode([self._edits[place].features for place in places])
        except EncodingError as error:
            if len(places) == 1:
                self.refused[places[0]] = without_frames(error)
                return
            middle = len(places) // 2
            self._check_features(places[:middle])
            self._check_features(places[middle:])


def _is_short(edits: Sequence[ItemEdit]) -> bool:
    return len(edits) <= _FEW and len(str(edits)) <= _SHORT


async def _in_thread_unless(is_short: bool, call: Callable[[], Result]) -> Result:
    return call() if is_short else await asyncio.to_thread(call)


def _as_cataloged(bundle: Bundle, edit: ItemEdit) -> ItemEdit:
    """The edit with texts as in the catalog; catalog columns that the item tower doesn't read are fields."""
    if not bundle.manifest.keeps_html:
        edit = _without_markup(edit)
    encoder, kinds = bundle.item_encoder, bundle.catalog.kinds
    if encoder is None:
        return edit
    features = {
        name: value for name, value in edit.features.items() if encoder.reads(name) or name not in kinds
    }
    typed = encoder.as_fields(edit.features, kinds)
    if typed == features:
        return edit
    if edit.fields is None and edit.method == "PUT":
        return edit._replace(features=features, fields=_shown(bundle, typed))
    unread = {name: value for name, value in typed.items() if name not in features}
    return edit._replace(features=features, fields={**unread, **edit.fields} if edit.fields else unread)


def _shown(bundle: Bundle, features: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an item that is put without fields: its features but vectors, which people don't read."""
    encoder = bundle.item_encoder
    hidden = (
        {feature.name for feature in encoder.features if feature.of.reading == "vectors"}
        if encoder
        else set()
    )
    return {name: value for name, value in features.items() if name not in hidden}


def _without_markup(edit: ItemEdit) -> ItemEdit:
    features = {name: plain_value(value) for name, value in edit.features.items()}
    fields = {name: plain_value(value) for name, value in (edit.fields or {}).items()}
    return edit._replace(features=features, fields=None if edit.fields is None else fields)


def _merged(present: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) of one level: values are replaced whole."""
    removed = {name for name, value in patch.items() if value is None}
    return {name: value for name, value in (present | patch).items() if name not in removed}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
