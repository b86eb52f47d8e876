"""The overlay of a bundle: items added, changed and withdrawn since it was made."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.moments import milliseconds
from turret.data.vocabulary import Id, Vocabulary, find_rows, is_canonical_integer
from turret.service.stores.contract import Change, Changes
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.columns import ItemColumns, Kind, Mask
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.errors import EncodingError

# Bytes that Python's objects and the columns of filters add to an item and to an id.
ITEM_OVERHEAD, ID_OVERHEAD = 700, 150
# The most items whose columns are made at once, which takes a quarter of a second of a thread.
_LARGEST = 16_384
_log = logging.getLogger("turret.items")


@dataclass(frozen=True)
class _Block:
    """Items that changed at about the same time; `is_newest` [m] tells which of `rows` no later block has."""

    rows: NDArray[np.int64]  # ascending
    columns: ItemColumns
    is_newest: Mask

    def current(self) -> NDArray[np.int64]:
        return self.rows[self.is_newest]

    def without(self, rows: NDArray[np.int64]) -> "_Block":
        places = np.searchsorted(self.rows, rows)
        places = places[places < len(self.rows)]
        places = places[np.isin(self.rows[places], rows)]
        if not len(places):
            return self
        is_newest = self.is_newest.copy()
        is_newest[places] = False
        return replace(self, is_newest=is_newest)


@dataclass(frozen=True)
class ChangedFields:
    """The changed fields of some rows. Immutable; `kinds` are those of the catalog's fields.

    A change makes a block of its own, and blocks merge as they grow, so each item is read again log2(n)
    times; a filter reads a block at once.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    by_row: Mapping[int, bytes] = field(default_factory=dict)  # JSON objects
    size: int = 0  # bytes of the JSON
    _blocks: tuple[_Block, ...] = ()  # the oldest first

    def changed(self, changes: Mapping[int, bytes], removed: Iterable[int] = ()) -> "ChangedFields":
        """These fields with new ones for some rows, and without the rows that are `removed`."""
        gone = {row for row in removed if row in self.by_row} | changes.keys()
        if not gone:
            return self
        by_row = {**self.by_row, **changes}
        for row in gone - changes.keys():
            del by_row[row]
        size = self.size + sum(map(len, changes.values()))
        size -= sum(len(self.by_row[row]) for row in gone if row in self.by_row)
        rows = np.array(sorted(gone), dtype=np.int64)
        blocks = [block for block in (one.without(rows) for one in self._blocks) if block.is_newest.any()]
        new = np.array(sorted(changes), dtype=np.int64)
        while blocks and np.count_nonzero(blocks[-1].is_newest) <= min(len(new), _LARGEST - len(new)):
            new = np.concatenate([new, blocks.pop().current()])
        if len(new):
            new.sort()
            columns = ItemColumns(self.kinds, [orjson.loads(by_row[row]) for row in new.tolist()])
            blocks.append(_Block(new, columns, np.ones(len(new), dtype=bool)))
        return ChangedFields(self.kinds, by_row, size, tuple(blocks))

    def put_allowed(self, filtering: Filter, mask: Mask) -> None:
        """Set the changed rows of `mask` [N] to whether a filter allows them."""
        for block in self._blocks:
            allowed = filtering.condition.mask(block.columns)
            mask[block.current()] = allowed[block.is_newest]


@dataclass(frozen=True)
class FreshItems:
    """The changes to a bundle of N rows, and the items added to it, whose rows begin with N. Immutable.

    A new item, and one that is put again, takes the next row; its earlier row is no longer recommended.
    `vectors` float32 [M, D], `ids` and `features` (JSON objects as they were put) are those of the M rows
    from N on, and `positions` has those that are recommended, row - N by id, in the order of their last
    changes. `added` has their fields by position, and `replaced` the new fields of rows of the bundle.
    `withdrawn` are the bundle's sorted rows that are not recommended, `withdrawn_ids` the ids of other
    withdrawn items. `number` is that of the last change.
    """

    vocabulary: Vocabulary  # of the bundle, which lives no longer for its overlay
    vectors: NDArray[np.float32]
    ids: Sequence[str] = ()
    features: Sequence[bytes] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    added: ChangedFields = field(default_factory=ChangedFields)
    replaced: ChangedFields = field(default_factory=ChangedFields)
    withdrawn: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    withdrawn_ids: frozenset[str] = frozenset()
    number: int = 0

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def first_row(self) -> int:
        """N, the row of the first fresh item."""
        return len(self.vocabulary)

    @cached_property
    def size(self) -> int:
        """About the bytes that the changes take in a process."""
        features = sum(len(self.features[place]) for place in self.positions.values())
        vectors = len(self) * int(self.vectors[:1].nbytes)
        fields = 2 * (self.added.size + self.replaced.size)  # as JSON and as columns
        items = ITEM_OVERHEAD * (len(self) + len(self.replaced.by_row))
        return features + vectors + fields + items + ID_OVERHEAD * len(self.withdrawn_ids)

    def row(self, outside_id: Id) -> int | None:
        """Return the row of an id, or None; withdrawn items of the bundle have one too."""
        row = self.vocabulary.row(outside_id)
        if row is not None or not self.positions:
            return row
        position = self.positions.get(str(outside_id))
        return None if position is None else self.first_row + position

    def known_rows(self, ids: Iterable[Id]) -> tuple[NDArray[np.int32], list[Id]]:
        """Return the rows of the known ids, in the order given, and the unknown ids."""
        if not self.positions:
            return self.vocabulary.known_rows(ids)
        return find_rows(self.row, ids)

    def known_rows_of_each(self, lists: Sequence[Sequence[Id]]) -> list[tuple[NDArray[np.int32], list[Id]]]:
        """Return `known_rows` of each list."""
        if not self.positions:
            return self.vocabulary.known_rows_of_each(lists)
        return [find_rows(self.row, ids) for ids in lists]

    def id(self, row: int) -> Id:
        """Return the id of a row, of the type of the bundle's ids."""
        if row < self.first_row:
            return self.vocabulary.id(row)
        text = self.ids[row - self.first_row]
        return int(text) if self.vocabulary.kind == "integer" else text

    def fields_of(self, row: int) -> bytes | None:
        """Return an item's fields as JSON; None if those of the bundle's catalog apply."""
        if row < self.first_row:
            return self.replaced.by_row.get(row)
        return self.added.by_row[row - self.first_row]

    @cached_property
    def served(self) -> RowMask | None:
        """The rows [N] of the bundle that are not withdrawn; None for all."""
        if not len(self.withdrawn):
            return None
        mask = np.ones(self.first_row, dtype=bool)
        mask[self.withdrawn] = False
        return RowMask(mask)

    @cached_property
    def fresh_served(self) -> Mask | None:
        """The mask [M] of the fresh rows that are recommended; None for all."""
        if len(self.positions) == len(self.ids):
            return None
        mask = np.zeros(len(self.ids), dtype=bool)
        mask[list(self.positions.values())] = True
        return mask

    def allowed(self, filtering: Filter) -> RowMask:
        """The rows [N] of the bundle that a filter allows.

        Excludes withdrawn rows and applies the filter to replaced fields. It is the filter's own mask if no
        row of the bundle has changed.
        """
        if not len(self.withdrawn) and not self.replaced.by_row:
            return filtering.allowed()
        return filtering.cached(("main", self._key), lambda: self._main_mask(filtering))

    def fresh_allowed(self, filtering: Filter) -> Mask:
        """The mask [M] of the fresh items that a filter allows, read-only."""
        return filtering.cached(("fresh", self._key), lambda: self._fresh_mask(filtering)).mask

    @cached_property
    def _key(self) -> object:
        """Identifies this overlay among the cached masks; a key of its number would match another store's."""
        return object()

    def _main_mask(self, filtering: Filter) -> Mask:
        mask = filtering.allowed().mask.copy()
        self.replaced.put_allowed(filtering, mask)
        mask[self.withdrawn] = False
        return mask

    def _fresh_mask(self, filtering: Filter) -> Mask:
        mask = np.zeros(len(self.ids), dtype=bool)
        self.added.put_allowed(filtering, mask)
        return mask


def empty_overlay(bundle: Bundle) -> FreshItems:
    """The empty overlay of a bundle."""
    empty = np.empty((0, bundle.manifest.dimension), dtype=np.float32)
    fields = ChangedFields(bundle.catalog.kinds)
    return FreshItems(bundle.vocabulary, empty, added=fields, replaced=fields)


def apply_changes(fresh: FreshItems, bundle: Bundle, changes: Changes) -> FreshItems:
    """Apply changes, in the order of their numbers, to the overlay `fresh` of `bundle`.

    - An item that the bundle lacks becomes fresh: its vector is computed from its features, as far as the
      item tower reads them. Without an item tower it is ignored.
    - An item of the bundle keeps its vector. A change newer than the bundle replaces its fields; an older one
      is part of the bundle already.
    - A withdrawn item is left out, however old the change, until it is put again.
    - An invalid entry of the store is skipped and logged.
    """
    valid = [change for change in changes.items if is_valid(change)]
    if not valid:
        return fresh if changes.last == fresh.number else replace(fresh, number=changes.last)
    exported = catalog_time(bundle)
    replaced: dict[int, bytes] = {}
    withdrawn_rows, withdrawn_ids = set(fresh.withdrawn.tolist()), set(fresh.withdrawn_ids)
    arrived: list[Change] = []
    changed_rows: list[int] = []
    for change in valid:
        row = bundle.vocabulary.row(change.item)
        if row is not None:
            changed_rows.append(row)
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
    fresh = replace(
        _with_added(fresh, moved, *_encode(bundle, arrived)),
        replaced=fresh.replaced.changed(replaced, changed_rows),
        withdrawn=np.array(sorted(withdrawn_rows), dtype=np.int64),
        withdrawn_ids=frozenset(withdrawn_ids),
        number=changes.last,
    )
    return fresh if 2 * len(fresh) >= len(fresh.ids) else _compact(fresh)


def _with_added(
    fresh: FreshItems, moved: Collection[str], arrived: Sequence[Change], vectors: NDArray[np.float32]
) -> FreshItems:
    """The overlay without the fresh items `moved`, and with those that `arrived` behind all others."""
    left = [fresh.positions[item] for item in moved if item in fresh.positions]
    if not left and not arrived:
        return fresh
    positions = {item: place for item, place in fresh.positions.items() if item not in moved}
    places = range(len(fresh.ids), len(fresh.ids) + len(arrived))
    fields = {place: change.fields or b"{}" for place, change in zip(places, arrived, strict=True)}
    return replace(
        fresh,
        vectors=np.concatenate([fresh.vectors, vectors]),
        ids=[*fresh.ids, *(change.item for change in arrived)],
        features=[*fresh.features, *(change.features or b"{}" for change in arrived)],
        positions=positions | {change.item: place for place, change in zip(places, arrived, strict=True)},
        added=fresh.added.changed(fields, left),
    )


def _compact(fresh: FreshItems) -> FreshItems:
    """The overlay without the rows that are no longer recommended."""
    kept = list(fresh.positions.values())
    none = ChangedFields(fresh.added.kinds)
    return replace(
        fresh,
        vectors=fresh.vectors[kept],
        ids=list(fresh.positions),
        features=[fresh.features[place] for place in kept],
        positions={item: place for place, item in enumerate(fresh.positions)},
        added=none.changed({new: fresh.added.by_row[old] for new, old in enumerate(kept)}),
    )


def can_name(vocabulary: Vocabulary, item: str) -> bool:
    """Whether a catalog with this kind of ids can have an item of this id."""
    return vocabulary.kind == "string" or is_canonical_integer(item)


def catalog_time(bundle: Bundle) -> int:
    """When the bundle's items were read, in milliseconds since 1970; building another index doesn't count."""
    manifest = bundle.manifest
    read = manifest.catalog_time or manifest.exported or manifest.created
    return milliseconds(read)


def is_valid(change: Change) -> bool:
    """Whether this service can have written a change; any other would break every answer."""
    try:
        parts = [orjson.loads(text) for text in (change.features, change.fields) if text is not None]
    except (ValueError, TypeError):
        parts = [None]
    valid = isinstance(change.item, str) and isinstance(change.time, int)
    valid = valid and all(isinstance(part, dict) for part in parts)
    if not valid:
        _log.warning("the entry %r of the item store is not a valid item; put it again", change.item)
    return valid


def _encode(bundle: Bundle, changes: list[Change]) -> tuple[list[Change], NDArray[np.float32]]:
    """The changes that this bundle can serve, and the vectors of their items."""
    encoder = bundle.item_encoder
    servable = [change for change in changes if can_name(bundle.vocabulary, change.item)]
    while encoder and servable:
        features = [encoder.readable(orjson.loads(change.features or b"{}")) for change in servable]
        try:
            return servable, encoder.encode(features)
        except EncodingError as error:  # the tower of another version accepted these features
            del servable[error.position]
    return [], np.empty((0, bundle.manifest.dimension), dtype=np.float32)
