"""The catalog: the fields of items, which answers show and filters read."""

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from turret.data.configuration import NO_DISPLAY, DisplaySettings
from turret.tower.catalog.columns import (
    OTHER,
    Coded,
    Column,
    Kind,
    column_arrays,
    comparable,
    kind_of,
    open_column,
)
from turret.tower.catalog.masks import MaskCache
from turret.tower.config import Settings
from turret.tower.errors import BundleError
from turret.tower.format.safe_open import read_regular
from turret.tower.format.sections import Section, Sections, map_file, pack

HEAD, BODY = "catalog.json", "catalog.bin"
_HEAD_BYTES = 16_000_000
# The type of a column's terms, by the kind of the column.
_TERMS = {"text": bytes, "texts": bytes, "number": float, "numbers": float, "boolean": float}


class Head(Settings):
    """`catalog.json`: the kind of each field, in the order of answers, and the sections of `catalog.bin`.

    Field number i has the sections `<i>.<array>`. Section `items` holds the JSON of each row end to end,
    `"id":7,"fields":{"title":"Heat"}`; `starts` [N + 1] says where the JSON of each row begins and
    `field_starts` [N] where its fields do. `display` says which fields people see.
    """

    kinds: dict[str, Kind]
    display: DisplaySettings = NO_DISPLAY
    sections: dict[str, Section]


class Catalog:
    """The fields of N items, memory-mapped: as JSON for answers, and as columns for filters.

    `kinds` are the kinds of the fields by name; `display` says which of them people see; `masks` caches the
    masks of recent filters.
    """

    def __init__(self, head: Head, sections: Sections, count: int) -> None:
        self._head = head
        self._count = count
        self.kinds = head.kinds
        self.display = head.display
        self.masks = MaskCache()
        self._buffer = sections.buffer
        if "items" not in head.sections or head.sections["items"].offset:
            raise sections.fault("items", "is not at the beginning")
        starts = sections.starts("starts", len(sections.array("items", "uint8")), count + 1)
        field_starts = sections.array("field_starts", "int64", count)
        if (field_starts < starts[:-1]).any() or (field_starts > starts[1:]).any():
            raise sections.fault("field_starts", "lies outside the items")
        # A memoryview yields Python integers several times faster than an array.
        self._starts, self._field_starts = starts.data, field_starts.data
        self._columns = {
            name: open_column(kind, str(i), sections, count)
            for i, (name, kind) in enumerate(head.kinds.items())
        }

    def __len__(self) -> int:
        return self._count

    @classmethod
    def build(
        cls,
        ids: Sequence[int | str],
        fields: Mapping[str, Sequence[Any]],
        display: DisplaySettings = NO_DISPLAY,
    ) -> "Catalog":
        """Make a catalog in memory from one value a row in each field; a NaN or infinity becomes null.

        Raises BundleError when a field has another number of values than there are ids, or holds a text
        that is not valid Unicode.
        """
        for name, values in fields.items():
            if len(values) != len(ids):
                raise BundleError(
                    f"field {name!r} of the catalog has {len(values)} values for {len(ids)} items"
                )
        try:
            arrays = _item_arrays(ids, fields)
        except UnicodeEncodeError as error:
            raise BundleError(
                f"the catalog's fields ({', '.join(fields)}) hold a text that can't be written as UTF-8: "
                f"{error}"
            ) from None
        kinds = {name: kind_of(values) for name, values in fields.items()}
        for i, (name, values) in enumerate(fields.items()):
            arrays |= {f"{i}.{part}": array for part, array in column_arrays(kinds[name], values).items()}
        sections, body = pack(arrays)
        head = Head(kinds=kinds, display=display, sections=sections)
        return cls(head, Sections(sections, body, BODY), len(ids))

    @classmethod
    def load(cls, folder: Path, count: int) -> "Catalog":
        """Map the files that `save` wrote for `count` items. Raises BundleError when they don't fit."""
        try:
            head = Head.model_validate_json(read_regular(folder / HEAD, _HEAD_BYTES))
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise BundleError(
                f"{folder / HEAD} is not the head of a catalog ({reason}); export the bundle again"
            ) from None
        return cls(head, Sections(head.sections, map_file(folder / BODY), str(folder / BODY)), count)

    def save(self, folder: Path) -> None:
        """Write `catalog.json` and `catalog.bin`."""
        (folder / HEAD).write_text(self._head.model_dump_json(), encoding="utf-8")
        (folder / BODY).write_bytes(self._buffer)

    def item_json(self, row: int) -> bytes:
        """The members of an item's JSON object: `"id":7,"fields":{"title":"Heat"}`."""
        return self._buffer[self._starts[row] : self._starts[row + 1]]

    def json_of(self, row: int) -> bytes:
        """The fields of one item as JSON: `{"title":"Heat"}`."""
        return self._buffer[self._field_starts[row] : self._starts[row + 1]]

    def of(self, row: int) -> dict[str, Any]:
        """The fields of one item."""
        fields: dict[str, Any] = json.loads(self.json_of(row))
        return fields

    def coded(self, name: str, rows: NDArray[np.integer[Any]], changed: Mapping[int, Any]) -> Coded:
        """The distinct values of a field of some rows; `changed` replaces the values at some places."""
        kind, column = self.kinds[name], self._columns[name]
        if kind == "mixed":  # such a field has no column of its values
            stored = {place: self.of(row).get(name) for place, row in enumerate(rows.tolist())}
            changed = stored | {**changed}
        coded = column.coded(rows)
        if not changed:
            return coded
        others: dict[Hashable, int] = {}
        codes, places = [], []
        for place, value in changed.items():
            for term in comparable(value):
                code = column.code(term) if isinstance(term, _TERMS.get(kind, ())) else None
                codes.append(others.setdefault(term, OTHER + len(others)) if code is None else code)
                places.append(place)
        keep = ~np.isin(coded.places, [*changed])
        return Coded(
            np.concatenate([coded.places[keep], np.array(places, np.int64)]),
            np.concatenate([coded.codes[keep], np.array(codes, np.int64)]),
        )

    def column(self, name: str) -> Column:
        """The column of a field. Raises KeyError for an unknown field."""
        return self._columns[name]


def _item_arrays(ids: Sequence[int | str], fields: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[Any]]:
    rows = zip(*fields.values(), strict=True) if fields else [()] * len(ids)
    named = [f'"id":{_json(item_id)},"fields":'.encode() for item_id in ids]
    shown = [_json(dict(zip(fields, row, strict=True))).encode() for row in rows]
    lengths, more = (np.array([*map(len, texts)], dtype=np.int64) for texts in (named, shown))
    starts = np.concatenate([[0], np.cumsum(lengths + more)])
    pieces = b"".join(piece for pair in zip(named, shown, strict=True) for piece in pair)
    return {
        "items": np.frombuffer(pieces, dtype=np.uint8),
        "starts": starts,
        "field_starts": starts[:-1] + lengths,
    }


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _json(value: Any) -> str:
    try:
        return _encode(value)
    except ValueError:  # JSON has no NaN and no infinity
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    return [_finite(member) for member in value] if isinstance(value, list | tuple) else value
