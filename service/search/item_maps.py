"""The map of the item vectors of a version, and the groups of items that it colours."""

from collections.abc import Sequence
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
    column = catalog.column(name) if kind else None
    if kind in ("text", "texts") and column is not None:
        return _by_value(column, len(catalog))
    if kind in ("number", "numbers") and column is not None:
        return _by_range(column, len(catalog))
    if kind == "boolean" and column is not None:
        masks = [column.among([True]), column.among([False])]
        return _coded(["true", "false"], masks, len(catalog))
    known = ", ".join(field for field, kind in catalog.kinds.items() if kind not in ("mixed", "none"))
    remedy = f"the map can be coloured by {known}" if known else "items have no field to colour the map by"
    raise InvalidFieldError("field", name, remedy)


def _by_value(column: Column, count: int) -> Colouring:
    summary = column.summary(MOST_GROUPS)
    has_others = summary.distinct > MOST_GROUPS
    values = [value for value, _ in summary.frequent][: MOST_GROUPS - has_others]
    masks = [column.among([value]) for value in values]
    labels = [str(value) for value in values]
    if has_others:
        masks.append(column.present())
        labels.append("other")
    return _coded(labels, masks, count)


def _by_range(column: Column, count: int) -> Colouring:
    summary = column.summary(_ALL_VALUES)
    if summary.distinct <= _RANGES:
        values = sorted(value for value, _ in summary.frequent)
        return _coded([f"{value:g}" for value in values], [column.among([value]) for value in values], count)
    bounds = _quantiles(summary)
    intervals = [Interval(low, high, high_open=True) for low, high in pairwise(bounds)]
    intervals[-1] = intervals[-1]._replace(high_open=False)
    labels = [f"{interval.low:g} to {interval.high:g}" for interval in intervals]
    return _coded(labels, [column.within(interval) for interval in intervals], count)


def _quantiles(summary: ColumnSummary) -> list[float]:
    """Ascending distinct bounds of ranges with about as many rows each."""
    ordered = sorted(summary.frequent)
    values = np.array([value for value, _ in ordered])
    until = np.cumsum([count for _, count in ordered])
    wanted = np.linspace(0, 1, _RANGES + 1)[1:-1] * until[-1]
    inner = values[np.searchsorted(until, wanted)]
    return np.unique(np.concatenate([values[:1], inner, values[-1:]])).tolist()  # type: ignore[no-any-return]


def _coded(labels: Sequence[str], masks: Sequence[Mask], count: int) -> Colouring:
    codes = np.full(count, NO_GROUP, dtype=np.uint8)
    for number in reversed(range(len(masks))):  # so that the first one of several stays
        codes[masks[number]] = number
    sizes = np.bincount(codes, minlength=NO_GROUP + 1)
    groups = tuple(Group(label, int(sizes[number])) for number, label in enumerate(labels))
    return Colouring(groups, codes)
