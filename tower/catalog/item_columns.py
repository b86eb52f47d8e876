"""Columns of items outside a catalog, in memory, so that a filter reads many of them at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turret.tower.catalog.columns import Column, Kind, Mask, column_arrays, kind_of, open_column
from turret.tower.catalog.conditions import Condition
from turret.tower.format.sections import Sections, pack

# The kinds of values that a filter on a field of a kind compares with as it would within the catalog.
_SAME: dict[Kind, frozenset[Kind]] = {
    "number": frozenset({"number", "numbers", "none"}),
    "numbers": frozenset({"number", "numbers", "none"}),
    "text": frozenset({"text", "texts", "none"}),
    "texts": frozenset({"text", "texts", "none"}),
    "boolean": frozenset({"boolean", "none"}),
    "none": frozenset({"none"}),
    "mixed": frozenset({"number", "numbers", "text", "texts", "boolean", "mixed", "none"}),
}


class ItemColumns:
    """The fields of N items, as far as a catalog has them; `kinds` are those of the catalog's fields.

    Items with a value of another kind than the catalog's are compared one by one.
    """

    def __init__(self, kinds: Mapping[str, Kind], items: Sequence[Mapping[str, Any]]) -> None:
        values = {name: [item.get(name) for item in items] for name in kinds}
        own = {name: kind_of(column) for name, column in values.items()}
        self._count = len(items)
        self._items = None if all(own[name] in _SAME[kind] for name, kind in kinds.items()) else items
        self._columns: dict[str, Column] = {}
        if self._items is None:
            arrays = {
                f"{name}.{part}": array
                for name, kind in own.items()
                for part, array in column_arrays(kind, values[name]).items()
            }
            described, body = pack(arrays)
            sections = Sections(described, body, "changed items")
            self._columns = {
                name: open_column(kind, name, sections, len(items)) for name, kind in own.items()
            }

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> Column:
        """The column of a field of the catalog."""
        return self._columns[name]

    def allowed(self, condition: Condition) -> Mask:
        """The items [N] that meet a condition."""
        if self._items is None:
            return condition.mask(self)
        return np.array([condition.matches(item) for item in self._items], dtype=bool)
