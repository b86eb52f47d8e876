"""Fields that changed since a bundle was made: as JSON for answers, and as columns for filters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.tower.catalog.columns import Kind, Mask
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.item_columns import ItemColumns

# The most items whose columns are made at once, which takes a quarter of a second of a thread.
_LARGEST = 16_384


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
            allowed = block.columns.allowed(filtering.condition)
            mask[block.current()] = allowed[block.is_newest]
