"""The map of the item vectors of a version, and the groups of items that it colours."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.errors import InvalidFieldError, NotFoundError
from turret.tower.bundle.bundle import Bundle
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Column, ColumnSummary, Interval, Mask
from turret.tower.format.item_map import ItemMap, open_item_map

# More colours can't be told apart.
MOST_GROUPS = 10
NO_GROUP = 255
_RANGES = 8
_ALL_VALUES = 1_000_000


def map_of(bundle: Bundle) -> ItemMap:
    """Open the map of a version. Raises NotFoundError if it has none, BundleError if it is damaged."""
    found = open_item_map(bundle.folder, bundle.manifest)
    if found is None:
        version = bundle.manifest.version
        message = f"version {version} has no map of its items; export the run again with `turret export`"
        raise NotFoundError("version", version, message)
    return found


class Group(NamedTuple):
    """A colour: its label, and the number of its items."""

    label: str
    items: int


class Colouring(NamedTuple):
    """The groups, and the number of the group of each row, uint8 [N]; NO_GROUP for rows without a value."""

    groups: tuple[Group, ...]
    codes: NDArray[np.uint8]


def colouring(catalog: Catalog, name: str) -> Colouring:
    """Group the rows by a field: by its most frequent texts, by ranges of its numbers, or by true and false.

    A row with several values belongs to the most frequent one. Raises InvalidFieldError.
    """
    kind = catalog.kinds.get(name)
    if kind in (None, "mixed", "none"):
        known = ", ".join(field for field, kind in catalog.kinds.items() if kind not in ("mixed", "none"))
        remedy = (
            f"the map can be coloured by {known}" if known else "items have no field to colour the map by"
        )
        raise InvalidFieldError("field", name, remedy)
    column = catalog.column(name)
    if kind in ("text", "texts"):
        groups = _by_value(column)
    elif kind == "boolean":
        groups = [("true", column.among([True])), ("false", column.among([False]))]
    else:
        groups = _by_range(column)
    codes = np.full(len(catalog), NO_GROUP, dtype=np.uint8)
    for number in reversed(range(len(groups))):  # so that the first one of several stays
        codes[groups[number][1]] = number
    sizes = np.bincount(codes, minlength=NO_GROUP + 1)
    return Colouring(tuple(Group(label, int(sizes[n])) for n, (label, _) in enumerate(groups)), codes)


def _by_value(column: Column) -> list[tuple[str, Mask]]:
    summary = column.summary(MOST_GROUPS)
    has_others = summary.distinct > MOST_GROUPS
    values = [value for value, _ in summary.frequent][: MOST_GROUPS - has_others]
    groups = [(str(value), column.among([value])) for value in values]
    return [*groups, ("other", column.present())] if has_others else groups


def _by_range(column: Column) -> list[tuple[str, Mask]]:
    summary = column.summary(_ALL_VALUES)
    if summary.distinct <= _RANGES:
        values = sorted(value for value, _ in summary.frequent)
        return [(f"{value:g}", column.among([value])) for value in values]
    intervals = [Interval(low, high, high_open=True) for low, high in pairwise(_quantiles(summary))]
    intervals[-1] = intervals[-1]._replace(high_open=False)
    return [(f"{interval.low:g} to {interval.high:g}", column.within(interval)) for interval in intervals]


def _quantiles(summary: ColumnSummary) -> list[float]:
    """Ascending distinct bounds of ranges with about as many rows each."""
    ordered = sorted(summary.frequent)
    values = np.array([value for value, _ in ordered])
    until = np.cumsum([count for _, count in ordered])
    wanted = np.linspace(0, 1, _RANGES + 1)[1:-1] * until[-1]
    inner = values[np.searchsorted(until, wanted)]
    return np.unique(np.concatenate([values[:1], inner, values[-1:]])).tolist()  # type: ignore[no-any-return]
