"""The overlay of a bundle: items added, changed and withdrawn since it was made."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from sys import getsizeof
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.moments import milliseconds
from turret.data.vocabulary import Id, Vocabulary, find_rows, is_canonical_integer
from turret.service.overlay.persistent import GrowingArray, LayeredMap
from turret.service.stores.contract import Change, Changes
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.columns import ItemColumns, Kind, Mask
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.errors import EncodingError

# The bytes of objects, maps and columns for each item, for its fields, and for each value of the fields.
ITEM_OVERHEAD, FIELDS_OVERHEAD, VALUE_OVERHEAD = 300, 300, 60
# The most bytes of items whose columns are made at once, which takes a thread a quarter of a second.
_LARGEST = 16_000_000
# Superseded changes are dropped once they have this many bytes more than the current changes.
_SLACK = 1_000_000
_log = logging.getLogger("turret.items")


def fields_bytes(fields: bytes) -> int:
    """The bytes that changed fields take in a process: as JSON, and as terms and paths of columns."""
    return FIELDS_OVERHEAD + 3 * len(fields) + VALUE_OVERHEAD * fields.count(b",")


def item_bytes(item: str, features: bytes, dimension: int) -> int:
    """The bytes that a fresh item takes in a process beside its fields."""
    return ITEM_OVERHEAD + getsizeof(item) + len(features) + 4 * dimension


@dataclass(frozen=True)
class _Block:
    """Items that changed at about the same time.

    `sizes` [m] are the bytes of their fields; `is_newest` [m] marks the `rows` that no later block has.
    """

    rows: NDArray[np.int64]  # ascending
    sizes: NDArray[np.int64]
    columns: ItemColumns
    is_newest: Mask

    def current(self) -> NDArray[np.int64]:
        return self.rows[self.is_newest]

    @cached_property
    def size(self) -> int:
        """The bytes of the newest rows."""
        return int(self.sizes[self.is_newest].sum())

    @property
    def is_sparse(self) -> bool:
        """Whether the newest rows have less than half of the bytes."""
        return 2 * self.size < int(self.sizes.sum())

    def without(self, rows: NDArray[np.int64]) -> "_Block":
        places = np.searchsorted(self.rows, rows)
        places = places[self.rows[np.minimum(places, len(self.rows) - 1)] == rows]
        if not len(places):
            return self
        is_newest = self.is_newest.copy()
        is_newest[places] = False
        return replace(self, is_newest=is_newest)


@dataclass(frozen=True)
class ChangedFields:
    """The changed fields of some rows. Immutable; `kinds` are those of the catalog's fields.

    Each change makes a new block, and blocks merge as they grow, so each item is read again log2(n) times; a
    filter reads a block at once. `size` is in bytes, and `held` includes superseded fields.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    by_row: LayeredMap[int, bytes] = field(default_factory=LayeredMap)  # JSON objects
    size: int = 0
    held: int = 0
    _blocks: tuple[_Block, ...] = ()  # the oldest first

    def changed(self, changes: Mapping[int, bytes], removed: Iterable[int] = ()) -> "ChangedFields":
        """These fields with the `changes` of some rows, and without the `removed` rows."""
        gone = {row for row in removed if row in self.by_row} | changes.keys()
        if not gone:
            return self
        by_row = self.by_row.changed(changes, gone - changes.keys())
        more = sum(map(fields_bytes, changes.values()))
        less = sum(fields_bytes(self.by_row[row]) for row in gone if row in self.by_row)
        rows = np.array(sorted(gone), dtype=np.int64)
        blocks = [block.without(rows) for block in self._blocks]
        again = [block for block in blocks if block.is_sparse]
        blocks = [block for block in blocks if not block.is_sparse]
        new, size = [*changes], more + sum(block.size for block in again)
        while blocks and blocks[-1].size <= min(size, _LARGEST - size):
            size += blocks[-1].size
            again.append(blocks.pop())
        new += [row for block in again for row in block.current().tolist()]
        blocks += _blocks(self.kinds, by_row, sorted(new))
        return ChangedFields(self.kinds, by_row, self.size + more - less, self.held + more, tuple(blocks))

    def compacted(self, row_of: NDArray[np.int64] | None = None) -> "ChangedFields":
        """The current fields without superseded ones; each row becomes `row_of[row]`."""
        fields, blocks = dict(self.by_row.items()), self._blocks
        if row_of is not None:
            fields = {int(row_of[row]): text for row, text in fields.items()}
            # Superseded rows of a block get the numbers of other rows, and stay marked as superseded.
            blocks = tuple(replace(block, rows=row_of[block.rows]) for block in blocks)
        return replace(self, by_row=LayeredMap(fields), held=self.size, _blocks=blocks)

    def put_allowed(self, filtering: Filter, mask: Mask) -> None:
        """Set the changed rows of `mask` [N] to whether a filter allows them."""
        for block in self._blocks:
            allowed = filtering.condition.mask(block.columns)
            mask[block.current()] = allowed[block.is_newest]


def _blocks(kinds: Iterable[str], by_row: Mapping[int, bytes], rows: Sequence[int]) -> Iterator[_Block]:
    """Make blocks of ascending rows, each of about `_LARGEST` bytes at most."""
    sizes = np.array([fields_bytes(by_row[row]) for row in rows], dtype=np.int64)
    parts = np.cumsum(sizes) // _LARGEST
    for part in np.unique(parts):
        first, end = np.searchsorted(parts, [part, part + 1])
        columns = ItemColumns(kinds, [orjson.loads(by_row[row]) for row in rows[first:end]])
        some = np.array(rows[first:end], dtype=np.int64)
        yield _Block(some, sizes[first:end], columns, np.ones(len(some), dtype=bool))


class Sent(NamedTuple):
    """The id of a fresh item, and its features as a JSON object as they were put."""

    item: str
    features: bytes


@dataclass(frozen=True)
class FreshItems:
    """The changes to a bundle of N rows, and the items added to it, whose rows begin with N. Immutable.

    A new item takes the next row, as does an item that is put again: its earlier row is no longer
    recommended. The place of a fresh item is its row - N. `places` has the places of recommended items by id,
    and `sent` their ids and features by place; `is_served` [M] marks these places, in the order of the items'
    last changes, and `rows` has the vectors of all M. `added` has the fields by place, and `replaced` the new
    fields of rows of the bundle. `withdrawn` are the bundle's sorted rows that are not recommended. `number`
    is the number of the last change.

    A change costs in proportion to its items, and copies 1 byte for each fresh item and 8 bytes for each
    withdrawn item.
    """

    vocabulary: Vocabulary  # of the bundle; a reference to the bundle would keep it alive
    rows: GrowingArray
    is_served: Mask = field(default_factory=lambda: np.empty(0, bool))
    places: LayeredMap[str, int] = field(default_factory=LayeredMap)
    sent: LayeredMap[int, Sent] = field(default_factory=LayeredMap)
    added: ChangedFields = field(default_factory=ChangedFields)
    replaced: ChangedFields = field(default_factory=ChangedFields)
    withdrawn: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    number: int = 0
    sent_size: int = 0  # bytes of `sent` and `rows`
    sent_held: int = 0  # bytes including superseded items

    def __len__(self) -> int:
        return len(self.places)

    @property
    def first_row(self) -> int:
        """N, the row of the first fresh item."""
        return len(self.vocabulary)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """The vectors [M, D] of the fresh rows."""
        return self.rows.values

    @property
    def size(self) -> int:
        """The bytes that the current changes take in a process; superseded ones take up to as many again."""
        return self.sent_size + self.added.size + self.replaced.size + self.withdrawn.nbytes

    @property
    def is_sparse(self) -> bool:
        """Whether superseded changes have more bytes than the current changes."""
        held = self.sent_held + self.added.held + self.replaced.held
        return held > 2 * self.size + _SLACK

    def row(self, outside_id: Id) -> int | None:
        """Return the row of an id, or None; withdrawn items of the bundle have a row too."""
        row = self.vocabulary.row(outside_id)
        if row is not None or not self.places:
            return row
        place = self.places.get(str(outside_id))
        return None if place is None else self.first_row + int(place)

    def known_rows(self, ids: Iterable[Id]) -> tuple[NDArray[np.int32], list[Id]]:
        """Return the rows of the known ids, in the order given, and the unknown ids."""
        return find_rows(self.row, ids) if self.places else self.vocabulary.known_rows(ids)

    def id(self, row: int) -> Id:
        """Return the id of a row, of the type of the bundle's ids."""
        if row < self.first_row:
            return self.vocabulary.id(row)
        text = self.sent[row - self.first_row].item
        return int(text) if self.vocabulary.kind == "integer" else text

    def fields_of(self, row: int) -> bytes | None:
        """Return an item's fields as JSON; None if the catalog's fields apply, or the row has no item."""
        is_added = row >= self.first_row
        fields: bytes | None = (
            self.added.by_row.get(row - self.first_row) if is_added else self.replaced.by_row.get(row)
        )
        return fields

    def rows_changed_since(self, earlier: "FreshItems") -> set[int]:
        """The rows whose id or fields may differ from an earlier overlay of the bundle."""
        places = self.added.by_row.keys_since(earlier.added.by_row)
        rows = self.replaced.by_row.keys_since(earlier.replaced.by_row)
        return rows.union(self.first_row + place for place in places)

    def is_withdrawn(self, row: int) -> bool:
        """Whether a row of the bundle is withdrawn."""
        place = int(np.searchsorted(self.withdrawn, row))
        return place < len(self.withdrawn) and int(self.withdrawn[place]) == row

    def serves(self, item: str) -> bool:
        """Whether an item with this id exists and is not withdrawn."""
        row = self.row(item)
        return row is not None and not self.is_withdrawn(row)

    @cached_property
    def served(self) -> RowMask | None:
        """The rows [N] of the bundle that are not withdrawn; None for all."""
        if not len(self.withdrawn):
            return None
        mask = np.ones(self.first_row, dtype=bool)
        mask[self.withdrawn] = False
        return RowMask(mask)

    @property
    def fresh_served(self) -> Mask | None:
        """The mask [M] of the fresh rows that are recommended; None for all."""
        return None if len(self) == len(self.is_served) else self.is_served

    def allowed(self, filtering: Filter) -> RowMask:
        """The rows [N] of the bundle that a filter allows.

        Excludes withdrawn rows and applies the filter to replaced fields. Returns the filter's own mask if no
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
        """The key of this overlay among cached masks; its number would also match those of another store."""
        return object()

    def _main_mask(self, filtering: Filter) -> Mask:
        mask = filtering.allowed().mask.copy()
        self.replaced.put_allowed(filtering, mask)
        mask[self.withdrawn] = False
        return mask

    def _fresh_mask(self, filtering: Filter) -> Mask:
        mask = np.zeros(len(self.is_served), dtype=bool)
        self.added.put_allowed(filtering, mask)
        return mask


def empty_overlay(bundle: Bundle) -> FreshItems:
    """The empty overlay of a bundle."""
    empty = np.empty((0, bundle.manifest.dimension), dtype=np.float32)
    fields = ChangedFields(bundle.catalog.kinds)
    return FreshItems(bundle.vocabulary, GrowingArray(empty), added=fields, replaced=fields)


def apply_changes(fresh: FreshItems, bundle: Bundle, changes: Changes) -> FreshItems:
    """Apply changes, in the order of their numbers, to the overlay `fresh` of `bundle`.

    - An item that the bundle lacks becomes fresh: its vector is computed from its features, as far as the
      item tower reads them. Without an item tower it is ignored.
    - An item of the bundle keeps its vector. A change newer than the bundle replaces its fields; an older one
      is part of the bundle already.
    - A withdrawn item is left out, however old the change, until it is put again; the overlay keeps no
      withdrawal of an item that the bundle lacks.
    - An invalid entry of the store is skipped and logged.
    """
    valid = [change for change in changes.items if is_valid(change)]
    if not valid:
        return fresh if changes.last == fresh.number else replace(fresh, number=changes.last)
    exported = catalog_time(bundle)
    replaced: dict[int, bytes] = {}
    is_withdrawn: dict[int, bool] = {}  # by row
    arrived: list[Change] = []
    for change in valid:
        row = bundle.vocabulary.row(change.item)
        if row is not None:
            is_withdrawn[row] = change.is_withdrawn
            replaced.pop(row, None)
            if change.fields is not None and not change.is_withdrawn and change.time >= exported:
                replaced[row] = change.fields
        elif not change.is_withdrawn:
            arrived.append(change)
    fresh = replace(
        _with_added(fresh, {change.item for change in valid}, *_encode(bundle, arrived)),
        replaced=fresh.replaced.changed(replaced, is_withdrawn),
        withdrawn=_with_rows(fresh.withdrawn, is_withdrawn),
        number=changes.last,
    )
    return _compacted(fresh) if fresh.is_sparse else fresh


def _with_rows(rows: NDArray[np.int64], is_in: Mapping[int, bool]) -> NDArray[np.int64]:
    """Sorted `rows` with the keys of `is_in` that are True, and without those that are False."""
    if not is_in:
        return rows
    left = rows[~np.isin(rows, [*is_in])]
    new = np.array(sorted(row for row, is_new in is_in.items() if is_new), dtype=np.int64)
    return np.insert(left, np.searchsorted(left, new), new)


def _with_added(
    fresh: FreshItems, moved: Collection[str], arrived: Sequence[Change], vectors: NDArray[np.float32]
) -> FreshItems:
    """The overlay without the fresh items `moved`, and with the items that `arrived` behind all others."""
    gone = {item: fresh.places[item] for item in moved if item in fresh.places}
    if not gone and not arrived:
        return fresh
    left = [*gone.values()]
    rows = fresh.rows.extended(vectors)
    is_served = np.concatenate([fresh.is_served, np.ones(len(arrived), dtype=bool)])
    is_served[left] = False
    new = dict(enumerate(arrived, len(fresh.is_served)))
    sent = {place: Sent(change.item, change.features or b"{}") for place, change in new.items()}
    more, less = (
        sum(item_bytes(*entry, vectors.shape[1]) for entry in entries)
        for entries in (sent.values(), map(fresh.sent.__getitem__, left))
    )
    return replace(
        fresh,
        rows=rows,
        is_served=is_served,
        places=fresh.places.changed({entry.item: place for place, entry in sent.items()}, gone),
        sent=fresh.sent.changed(sent, left),
        added=fresh.added.changed({place: change.fields or b"{}" for place, change in new.items()}, left),
        sent_size=fresh.sent_size + more - less,
        sent_held=fresh.sent_held + more,
    )


def _compacted(fresh: FreshItems) -> FreshItems:
    """The overlay without superseded changes."""
    kept = np.flatnonzero(fresh.is_served)
    sent = {place: fresh.sent[int(old)] for place, old in enumerate(kept)}
    return replace(
        fresh,
        rows=GrowingArray(fresh.vectors[kept]),
        is_served=np.ones(len(kept), dtype=bool),
        places=LayeredMap({entry.item: place for place, entry in sent.items()}),
        sent=LayeredMap(sent),
        added=fresh.added.compacted(np.cumsum(fresh.is_served) - 1),
        replaced=fresh.replaced.compacted(),
        sent_held=fresh.sent_size,
    )


def can_name(vocabulary: Vocabulary, item: str) -> bool:
    """Whether a catalog with this kind of ids can have an item of this id."""
    return vocabulary.kind == "string" or is_canonical_integer(item)


def catalog_time(bundle: Bundle) -> int:
    """The time when the bundle's items were read, in ms since 1970; building another index doesn't count."""
    manifest = bundle.manifest
    read = manifest.catalog_time or manifest.exported or manifest.created
    return milliseconds(read)


def is_valid(change: Change) -> bool:
    """Whether this service can have written a change; any other change would break every answer."""
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
    nothing: tuple[list[Change], NDArray[np.float32]] = (
        [],
        np.empty((0, bundle.manifest.dimension), np.float32),
    )
    if encoder is None or not servable:
        return nothing
    try:
        features = (encoder.readable(orjson.loads(change.features or b"{}")) for change in servable)
        return servable, encoder.encode([*features])
    except EncodingError:  # the tower of another version accepted these features
        if len(servable) == 1:
            return nothing
    middle = len(servable) // 2
    (first, ahead), (second, behind) = (
        _encode(bundle, some) for some in (servable[:middle], servable[middle:])
    )
    return [*first, *second], np.concatenate([ahead, behind])
