"""Apply the changes of the item store to a bundle's overlay."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.vocabulary import Vocabulary, is_canonical_integer
from turret.service.overlay.fresh import FreshItems
from turret.service.stores.contract import Change, Changes
from turret.tower.bundle.bundle import Bundle
from turret.tower.errors import EncodingError
from turret.tower.inference.item_encoder import ItemEncoder

_log = logging.getLogger("turret.items")


def empty_overlay(bundle: Bundle) -> FreshItems:
    """The empty overlay of a bundle."""
    empty = np.empty((0, bundle.manifest.dimension), dtype=np.float32)
    return FreshItems(bundle.vocabulary, empty)


def apply_changes(fresh: FreshItems, bundle: Bundle, changes: Changes) -> FreshItems:
    """Apply changes, in the order of their numbers, to the overlay `fresh` of `bundle`.

    - An item that the bundle lacks becomes fresh: its vector is computed from its features, as far as the
      item tower reads them. Without an item tower it is ignored.
    - An item of the bundle keeps its vector. A change newer than the bundle replaces its fields; an older one
      is part of the bundle already.
    - A withdrawn item is left out, however old the change, until it is put again.
    - An invalid entry of the store is skipped and logged.
    """
    valid = [change for change in changes.items if _is_valid(change)]
    if not valid:
        return fresh if changes.last == fresh.number else replace(fresh, number=changes.last)
    exported = exported_at(bundle)
    replaced = dict(fresh.replaced)
    withdrawn_rows, withdrawn_ids = set(fresh.withdrawn.tolist()), set(fresh.withdrawn_ids)
    arrived: list[Change] = []
    for change in valid:
        row = bundle.vocabulary.row(change.item)
        if row is not None:
            replaced.pop(row, None)
            withdrawn_rows.discard(row)
            if change.is_withdrawn:
                withdrawn_rows.add(row)
            elif change.fields is not None and change.time >= exported:
                replaced[row] = change.fields
        elif change.is_withdrawn:
            withdrawn_ids.add(change.item)
        else:
            withdrawn_ids.discard(change.item)
            arrived.append(change)
    moved = {change.item for change in valid}
    added = _append(fresh, moved, *_encode(bundle, arrived))
    return FreshItems(
        vocabulary=bundle.vocabulary,
        vectors=added.vectors,
        ids=added.ids,
        fields=added.fields,
        features=added.features,
        replaced=replaced,
        withdrawn=np.array(sorted(withdrawn_rows), dtype=np.int64),
        withdrawn_ids=frozenset(withdrawn_ids),
        number=changes.last,
    )


def can_name(vocabulary: Vocabulary, item: str) -> bool:
    """Whether a catalog with this kind of ids can have an item of this id."""
    return vocabulary.kind == "string" or is_canonical_integer(item)


def exported_at(bundle: Bundle) -> int:
    """When training exported the bundle, in milliseconds since 1970; building another index doesn't count."""
    exported = bundle.manifest.exported or bundle.manifest.created
    return round(datetime.fromisoformat(exported).timestamp() * 1000)


def _is_valid(change: Change) -> bool:
    """Whether this service can have written a change; any other would break every answer."""
    try:
        parts = [orjson.loads(text) for text in (change.features, change.fields) if text is not None]
    except (ValueError, TypeError):
        parts = [None]
    is_valid = isinstance(change.item, str) and isinstance(change.time, int)
    is_valid = is_valid and all(isinstance(part, dict) for part in parts)
    if not is_valid:
        _log.warning("the entry %r of the item store is not a valid item; put it again", change.item)
    return is_valid


class _Added(NamedTuple):
    vectors: NDArray[np.float32]
    ids: list[str]
    fields: list[bytes]
    features: list[bytes]


def _append(
    fresh: FreshItems, moved: set[str], arrived: Sequence[Change], vectors: NDArray[np.float32]
) -> _Added:
    """The fresh items that did not change, in their order, then the changed ones."""
    stay = [position for position, item in enumerate(fresh.ids) if item not in moved]
    unchanged = fresh.vectors if len(stay) == len(fresh) else fresh.vectors[stay]
    return _Added(
        np.concatenate([unchanged, vectors]),
        [fresh.ids[i] for i in stay] + [change.item for change in arrived],
        [fresh.fields[i] for i in stay] + [change.fields or b"{}" for change in arrived],
        [fresh.features[i] for i in stay] + [_once(change) for change in arrived],
    )


def _once(change: Change) -> bytes:
    """The features of a change; the same object as its fields if they are equal, as by default."""
    features = change.features or b"{}"
    return change.fields if change.fields == features else features


def _encode(bundle: Bundle, changes: Sequence[Change]) -> tuple[list[Change], NDArray[np.float32]]:
    """The changes that this bundle can serve, and the vectors of their items."""
    encoder = bundle.item_encoder
    servable = [change for change in changes if can_name(bundle.vocabulary, change.item)] if encoder else []
    while encoder and servable:
        try:
            return servable, encoder.encode([_features(encoder, change) for change in servable])
        except EncodingError as error:  # the tower of another version accepted these features
            del servable[error.position]
    return [], np.empty((0, bundle.manifest.dimension), dtype=np.float32)


def _features(encoder: ItemEncoder, change: Change) -> dict[str, object]:
    return encoder.readable(orjson.loads(change.features or b"{}"))
