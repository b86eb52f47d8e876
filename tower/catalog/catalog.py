"""The catalog: the fields of items, which answers show and filters read."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from turret.tower.catalog.columns import Column, Kind, column_arrays, kind_of, open_column
from turret.tower.catalog.masks import MaskCache
from turret.tower.config import Settings
from turret.tower.errors import BundleError
from turret.tower.format.safe_open import read_regular
from turret.tower.format.sections import Section, Sections, map_file, pack

HEAD, BODY = "catalog.json", "catalog.bin"
_HEAD_BYTES = 16_000_000


class Field(Settings):
    """The name and the kind of a field."""

    name: str
    kind: Kind


class Head(Settings):
    """`catalog.json`; `vocabulary` is the SHA-256 of the bundle's `vocabulary.json`.

    Field number i has the sections `<i>.<array>` of `catalog.bin`. Section `items` holds the JSON of each
    row end to end, `"id":7,"fields":{"title":"Heat"}`; `starts` [N + 1] says where that of each row begins
    and `field_starts` [N] where its fields do.
    """

    count: int
    vocabulary: str
    fields: tuple[Field, ...]
    sections: dict[str, Section]


class Catalog:
    """The fields of N items, memory-mapped: as JSON for answers, and as columns for filters.

    `masks` caches the masks of recent filters.
    """

    def __init__(self, head: Head, sections: Sections) -> None:
        self.head = head
        self.kinds = {field.name: field.kind for field in head.fields}
        self.masks = MaskCache(head.count)
        self._sections = sections
        self._buffer = sections.buffer
        # The items are at the beginning of the buffer. A memoryview yields Python integers several times
        # faster than an array.
        self._starts = sections.array("starts", "int64", head.count + 1).data
        self._field_starts = sections.array("field_starts", "int64", head.count).data
        self._columns = {
            field.name: open_column(field.kind, str(i), sections, head.count)
            for i, field in enumerate(head.fields)
        }

    def __len__(self) -> int:
        return self.head.count

    @classmethod
    def build(
        cls, ids: Sequence[int | str], fields: Mapping[str, Sequence[Any]], vocabulary: str = ""
    ) -> "Catalog":
        """Make a catalog in memory from one value a row in each field; a NaN or infinity becomes null.

        Raises BundleError when a field has another number of values than there are ids, or holds a text
        that is not valid Unicode.
        """
        try:
            head, body = _packed(ids, fields, vocabulary)
        except UnicodeEncodeError as error:
            raise BundleError(
                f"the catalog's fields ({', '.join(fields)}) hold a text that can't be written as UTF-8: "
                f"{error}"
            ) from None
        return cls(head, Sections(head.sections, body, BODY))

    @classmethod
    def load(cls, folder: Path, count: int, vocabulary: str | None = None) -> "Catalog":
        """Map the files that `save` wrote for `count` items.

        Raises BundleError when they are invalid, or belong to another vocabulary than the one with this
        SHA-256.
        """
        head = _read_head(folder / HEAD)
        if head.count != count:
            raise BundleError(
                f"{folder / HEAD} is of {head.count} items where the manifest says {count}; the files are of "
                "different models",
                "parts",
            )
        if vocabulary is not None and head.vocabulary != vocabulary:
            raise BundleError(
                f"{folder / HEAD} belongs to another vocabulary than vocabulary.json; they are of different "
                "models",
                "parts",
            )
        return cls(head, Sections(head.sections, map_file(folder / BODY), str(folder / BODY)))

    def save(self, folder: Path) -> None:
        """Write `catalog.json` and `catalog.bin`."""
        (folder / HEAD).write_text(self.head.model_dump_json(), encoding="utf-8")
        (folder / BODY).write_bytes(self._buffer)

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields, in the order in which answers show them."""
        return tuple(self.kinds)

    def item_json(self, row: int) -> bytes:
        """The members of an item's JSON object: `"id":7,"fields":{"title":"Heat"}`."""
        return self._buffer[self._starts[row] : self._starts[row + 1]]

    def json_of(self, row: int) -> bytes:
        """The fields of one item as JSON: `{"title":"Heat"}`."""
        return self._buffer[self._field_starts[row] : self._starts[row + 1]]

    def of(self, row: int) -> dict[str, Any]:
        """Return the fields of one item."""
        fields: dict[str, Any] = json.loads(self.json_of(row))
        return fields

    @property
    def fields(self) -> dict[str, list[Any]]:
        """All fields, one value a row in each; parsed on every call, for tests and tools."""
        rows = [self.of(row) for row in range(len(self))]
        return {name: [row[name] for row in rows] for name in self.field_names}

    def column(self, name: str) -> Column:
        """The column of a field. Raises KeyError for an unknown one."""
        return self._columns[name]


def _packed(
    ids: Sequence[int | str], fields: Mapping[str, Sequence[Any]], vocabulary: str
) -> tuple[Head, bytes]:
    _check_lengths(len(ids), fields)
    kinds: dict[str, Kind] = {name: kind_of(values) for name, values in fields.items()}
    arrays = _item_arrays(ids, fields)
    for i, (name, values) in enumerate(fields.items()):
        stored = column_arrays(kinds[name], values)
        arrays |= {f"{i}.{part}": array for part, array in stored.items()}
    sections, body = pack(arrays)
    described = tuple(Field(name=name, kind=kind) for name, kind in kinds.items())
    return Head(count=len(ids), vocabulary=vocabulary, fields=described, sections=sections), body


def _item_arrays(ids: Sequence[int | str], fields: Mapping[str, Sequence[Any]]) -> dict[str, NDArray[Any]]:
    named = [f'"id":{_json(item_id)},"fields":'.encode() for item_id in ids]
    rows = zip(*fields.values(), strict=True) if fields else [()] * len(ids)
    shown = [_json(dict(zip(fields, row, strict=True))).encode() for row in rows]
    ends = np.cumsum([len(name) + len(text) for name, text in zip(named, shown, strict=True)], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    pieces = b"".join(piece for pair in zip(named, shown, strict=True) for piece in pair)
    return {
        "items": np.frombuffer(pieces, dtype=np.uint8),
        "starts": starts,
        "field_starts": starts[:-1] + np.array([len(name) for name in named], dtype=np.int64),
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


def _check_lengths(count: int, fields: Mapping[str, Sequence[Any]]) -> None:
    for name, values in fields.items():
        length = len(values) if isinstance(values, list | tuple) else None
        if length != count:
            raise BundleError(f"field {name!r} of the catalog has {length} values for {count} items", "parts")


def _read_head(path: Path) -> Head:
    try:
        return Head.model_validate_json(read_regular(path, _HEAD_BYTES))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise BundleError(
            f"{path} is not the head of a catalog ({reason}); export the bundle again", "parts"
        ) from None
