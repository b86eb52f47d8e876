"""From the edits of a call to the changes that a store has to keep: checks, order, and room."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from turret.data.vocabulary import ID_LENGTH
from turret.service.errors import BodyError, ConflictError, InvalidFieldError, NotFoundError, RequestError
from turret.service.overlay.fresh import ITEM_OVERHEAD, FreshItems, can_name, catalog_time, is_valid
from turret.service.stores.contract import Change, NewChange
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import EncodingError

Refused = RequestError | EncodingError
# Of an item's features and fields together: every process holds those of all fresh items.
ITEM_BYTES = 48_000
_AT_ONCE = 1024  # items whose features are checked at once


class ItemEdit(NamedTuple):
    """One change of a call: what `method` does by itself, with a body of `features` and `fields`."""

    item: str
    method: Literal["PUT", "PATCH", "DELETE"] = "PUT"
    features: dict[str, Any] = {}  # noqa: RUF012 - never written
    fields: dict[str, Any] | None = None


class _Content(NamedTuple):
    """An item as a store keeps it; without features it is withdrawn."""

    features: bytes | None = None
    fields: bytes | None = None


class EditPlan:
    """The edits of one call to a bundle with its overlay; `limit` bounds the bytes of the overlay.

    `changed_in_part` are the items whose last change `changes` needs. It fills `refused`, by the places of
    edits.
    """

    def __init__(self, bundle: Bundle, fresh: FreshItems, limit: int, edits: Sequence[ItemEdit]) -> None:
        self._bundle, self._fresh, self._limit = bundle, fresh, limit
        self._taken = fresh.size
        self._edits = edits
        self._places: dict[str, list[int]] = {}
        for place, edit in enumerate(edits):
            self._places.setdefault(edit.item, []).append(place)
        self.changed_in_part = list({edit.item for edit in edits if edit.method == "PATCH"})
        self.refused: dict[int, Refused] = {}

    def changes(self, last: Mapping[str, Change | None]) -> list[NewChange]:
        """The changes to store, one of each item: the outcome of its edits in their order."""
        self._check_ids()
        checked = [
            place
            for place, edit in enumerate(self._edits)
            if edit.method != "DELETE" and place not in self.refused
        ]
        for first in range(0, len(checked), _AT_ONCE):
            self._check_features(checked[first : first + _AT_ONCE])
        now = max(time.time_ns() // 1_000_000, catalog_time(self._bundle))  # even if clocks differ
        changes = []
        for item in self._places:
            content = self._content(item, last.get(item))
            if content is not None:
                before = last.get(item)
                after = (before.number if before else 0) if item in last else None
                changes.append(NewChange(item, now, *content, after))
        return changes

    def _content(self, item: str, last: Change | None) -> _Content | None:
        """The content of an item after its edits; None if all of them are refused."""
        content: _Content | None = None
        for place in self._places[item]:
            if place in self.refused:
                continue
            try:
                new = self._edited(self._edits[place], content, last)
                self._take(item, content, new)
            except RequestError as error:
                self.refused[place] = error
            else:
                content = new
        return content

    def _edited(self, edit: ItemEdit, content: _Content | None, last: Change | None) -> _Content:
        item, version = edit.item, self._bundle.manifest.version
        if edit.method == "PUT":
            self._check_servable(item)
            return _stored(edit.features, self._shown(edit.features) if edit.fields is None else edit.fields)
        if edit.method == "DELETE":
            is_known = self._fresh.row(item) is not None or item in self._fresh.withdrawn_ids
            if not is_known and content is None:
                message = f"version {version} has no such item, and none was added; check the id"
                raise NotFoundError("id", item, message)
            return _Content()
        content = content or self._present(item, last)
        if content is None:
            message = f"version {version} has no such item, and none was added; PUT it"
            raise NotFoundError("id", item, message)
        if content.features is None or content.fields is None:
            raise ConflictError("id", item, "this item is withdrawn; PUT it to serve it again")
        self._check_servable(item)
        features, fields = orjson.loads(content.features), orjson.loads(content.fields)
        return _stored(_merged(features, edit.features), _merged(fields, edit.fields or {}))

    def _present(self, item: str, last: Change | None) -> _Content | None:
        """The content that a change in part begins with; None for an unknown item.

        The features of an item that was never put are those among its fields that the item tower reads, for
        versions that don't have the item.
        """
        row, encoder = self._bundle.vocabulary.row(item), self._bundle.item_encoder
        of_bundle = None if row is None else self._bundle.catalog.json_of(row)
        if last is not None and last.is_withdrawn:
            return _Content()
        if last is not None and is_valid(last):
            is_newer = of_bundle is None or last.time >= catalog_time(self._bundle)
            return _Content(last.features, last.fields if is_newer else of_bundle)
        if of_bundle is None:
            return None
        return _Content(_json(encoder.readable(orjson.loads(of_bundle)) if encoder else {}), of_bundle)

    def _check_servable(self, item: str) -> None:
        if self._bundle.item_encoder is None and self._bundle.vocabulary.row(item) is None:
            message = (
                f"version {self._bundle.manifest.version} has no item tower that reads features, so it can't "
                "serve items that it wasn't trained with; train with tower.item.features and export again"
            )
            raise ConflictError("id", item, message)

    def _shown(self, features: dict[str, Any]) -> dict[str, Any]:
        """The features as fields, without vectors, which neither people nor filters look at."""
        encoder = self._bundle.item_encoder
        hidden = {one.name for one in encoder.features if one.kind == "vector"} if encoder else set()
        return {name: value for name, value in features.items() if name not in hidden}

    def _take(self, item: str, before: _Content | None, new: _Content) -> None:
        """Count the bytes of an item. Raises ConflictError where an overlay with more has no room."""
        more = self._bytes(item, new)
        more -= self._held(item) if before is None else self._bytes(item, before)
        if more > 0 and self._taken + more > self._limit:
            message = (
                f"new, changed and withdrawn items take {self._taken / 1e6:.4g} MB of the "
                f"{self._limit / 1e6:.4g} MB of TURRET_OVERLAY_BYTES; train and activate a version with "
                "them, withdraw some, or raise TURRET_OVERLAY_BYTES"
            )
            raise ConflictError("id", item, message)
        self._taken += more

    def _bytes(self, item: str, content: _Content) -> int:
        if content.features is None or content.fields is None:
            return 0
        size = ITEM_OVERHEAD + 2 * len(content.fields)
        if self._bundle.vocabulary.row(item) is None:
            size += len(content.features) + 4 * self._bundle.manifest.dimension
        return size

    def _held(self, item: str) -> int:
        """The bytes of the item in the overlay."""
        row = self._fresh.row(item)
        fields = None if row is None else self._fresh.fields_of(row)
        if row is None or fields is None:
            return 0
        features = self._fresh.features[row - self._fresh.first_row] if row >= self._fresh.first_row else b""
        return self._bytes(item, _Content(features, fields))

    def _check_ids(self) -> None:
        version = self._bundle.manifest.version
        for place, (item, method, *_) in enumerate(self._edits):
            is_short = 1 <= len(item) <= ID_LENGTH
            if is_short and can_name(self._bundle.vocabulary, item):
                continue
            if method == "PUT":
                message = f"version {version} has integer ids; send an integer id"
                message = message if is_short else f"send an id of 1 to {ID_LENGTH} characters"
                self.refused[place] = InvalidFieldError("id", item, message)
            else:
                self.refused[place] = NotFoundError("id", item, f"version {version} can't have such an item")

    def _check_features(self, places: Sequence[int]) -> None:
        """Refuse features that don't fit the item tower."""
        encoder = self._bundle.item_encoder
        if encoder is None:
            return
        try:
            encoder.encode([self._edits[place].features for place in places])
        except EncodingError as error:
            if len(places) == 1:
                self.refused[places[0]] = error
                return
            for place in places:
                self._check_features([place])


def _merged(present: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) of one level: values are replaced whole."""
    removed = {name for name, value in patch.items() if value is None}
    return {name: value for name, value in (present | patch).items() if name not in removed}


def _stored(features: dict[str, Any], fields: dict[str, Any]) -> _Content:
    """Features and fields as they are stored. Raises BodyError for more than ITEM_BYTES."""
    content = _Content(_json(features), _json(fields))
    if sum(map(len, content)) > ITEM_BYTES:  # type: ignore[arg-type]
        message = f"features and fields together exceed {ITEM_BYTES} bytes; leave some fields out"
        raise BodyError("fields", None, message, status=413)
    return content


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
