"""Warnings about fields, values and items that the live version has nowhere; most of them are misspelt.

Unknown names are not refused: a field may be new, and an item may belong to another version. Another warning
names the fields that an item loses when it is put again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from reprlib import Repr
from types import NoneType
from typing import Any, TypeVar

from turret.data.vocabulary import Id
from turret.service.overlay.fresh import FreshItems
from turret.tower.bundle.bundle import Bundle

Name = TypeVar("Name")
_MOST = 3  # names in a warning
_REPR = Repr()
_REPR.maxstring = 60
_KINDS: dict[type, str] = {NoneType: "none", bool: "boolean", str: "text", int: "number", float: "number"}
_VALUES = {"boolean": "true or false", "text": "a text", "number": "a number", "mixed": "an object or a list"}


def field_warning(bundle: Bundle, changes: Sequence[Mapping[str, Any]]) -> str | None:
    """Sentences on fields that no item of the catalog has, or has only with values of other types.

    A feature of the item tower is no misspelt field. `changes` has the fields of each change. The warning
    depends on the catalog and the tower alone, so that a repeated call has the same warning again.
    """
    kinds, version, encoder = bundle.catalog.kinds, bundle.manifest.version, bundle.item_encoder
    unknown, odd = Counter[str](), Counter[tuple[str, str]]()
    for fields in changes:
        unknown.update(name for name in fields if name not in kinds and not (encoder and encoder.reads(name)))
        known = ((name, value) for name, value in fields.items() if name in kinds)
        odd.update((name, kind) for name, value in known for kind in _other_kinds(value, kinds[name]))

    def share(count: int) -> str:
        return f" ({count} of {len(changes)} changes)" if len(changes) > 1 else ""

    sentences = []
    if unknown:
        named = _first(unknown, lambda name: _REPR.repr(name) + share(unknown[name]))
        sentences.append(
            f"no item of version {version} has the field {named}; filters don't read it, check its name"
        )
    if odd:
        named = _first(
            odd, lambda key: f"{_VALUES[key[1]]} as {_REPR.repr(key[0])} ({kinds[key[0]]}){share(odd[key])}"
        )
        sentences.append(
            f"no item of version {version} has {named}; filters compare values of one type, send that"
        )
    return ". ".join(sentences) or None


def _other_kinds(value: Any, kind: str) -> set[str]:
    """The kinds of a value, or of a list's values, that no value of a catalog field of `kind` has."""
    if kind in ("mixed", "none"):
        return set()
    # A set of types, as a list may have very many values.
    types = {*map(type, value)} if isinstance(value, list) else {type(value)}
    return {_KINDS.get(value_type, "mixed") for value_type in types} - {"none", kind.removesuffix("s")}


def _first(names: Collection[Name], shown: Callable[[Name], str]) -> str:
    more = len(names) - _MOST
    return ", ".join(map(shown, islice(names, _MOST))) + (f", and {more} more" if more > 0 else "")


def lost_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The names of the fields that an item had and has no longer, shortened; empty if there are none."""
    return _first([name for name in before if name not in after], _REPR.repr)


def lost_warning(lost: Mapping[str, str]) -> str | None:
    """A sentence on withdrawn items that were put; `lost` has their `lost_fields` by id."""
    if not lost:
        return None
    named = _first(lost, lambda item: f"{_REPR.repr(item)} ({lost[item]})")
    return (
        f"withdrawn items were put without fields that they had: {named}; in place of a PUT, a PATCH with "
        '"withdrawn": false restores them'
    )


def item_warning(fresh: FreshItems, version: str, items: Sequence[Id]) -> str | None:
    """A sentence on events of items that neither the version nor its overlay has."""
    _, unknown = fresh.known_rows(items)
    if not unknown:
        return None
    named = _first(dict.fromkeys(map(str, unknown)), _REPR.repr)
    count = f"{len(unknown)} of {len(items)} events"
    return f"{count} are of items that version {version} lacks: {named}; check the ids, or put these items"
