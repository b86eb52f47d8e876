"""The catalog in the terms of an engine: its columns as fields, and its conditions as conditions on fields.

An engine names a field by its place, and the texts of a field are numbered in their order, so that an engine
stores and compares integers: no text has to be escaped in a query language, and a range of texts is a range
of codes. `Among` holds codes, and `Within` bounds numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Column, Interval, Mask, NumberColumn
from turret.tower.catalog.conditions import (
    Among,
    Columns,
    Condition,
    Every,
    Kept,
    Not,
    Present,
    Some,
    Under,
    Within,
)
from turret.tower.engines.engine import EngineField

# A longer list of codes costs an engine more than the exact search among the rows.
_MOST_CODES = 1000


def engine_fields(catalog: Catalog) -> list[EngineField]:
    """The fields of a catalog in its order, and behind them the draw (see `drawn`)."""
    fields = [_field(catalog.column(name)) for name in catalog.kinds]
    return [*fields, EngineField(drawn(len(catalog)).astype(np.float64))]


def drawn(count: int) -> NDArray[np.int64]:
    """A permutation of `count` rows with a fixed seed: rows with a place below n are a uniform sample."""
    return np.random.default_rng(0).permutation(count)


@dataclass(frozen=True)
class Drawn:
    """The condition that an item's place in the draw is below `count`; it measures recall by selectivity."""

    count: int

    def mask(self, items: Columns) -> Mask:
        return drawn(len(items)) < self.count


def where_of(condition: Condition, catalog: Catalog) -> Condition | None:
    """A condition in the terms of the engine; None where the engine can't say it exactly."""
    draw = str(len(catalog.kinds))
    always = Present(draw)  # every item has a place in the draw
    match condition:
        case Drawn(count):
            return Within(draw, Interval(None, float(count), high_open=True))
        case Kept(inner):
            return where_of(inner, catalog)
        case Not(inner):
            met = where_of(inner, catalog)
            return None if met is None else Not(met)
        case Every(parts) | Some(parts):
            said = [where_of(part, catalog) for part in parts]
            known = tuple(part for part in said if part is not None)
            if len(known) < len(said):
                return None
            combine = Every if isinstance(condition, Every) else Some
            return combine(known) if known else (always if combine is Every else Not(always))
        case Present(name):
            return Present(_place(name, catalog))
        case Among(name) | Within(name) | Under(name):
            return _of_field(condition, _place(name, catalog), catalog.column(name), Not(always))
    return None


def _place(name: str, catalog: Catalog) -> str:
    return str(list(catalog.kinds).index(name))


def _of_field(
    condition: Among | Within | Under, place: str, column: Column, never: Condition
) -> Condition | None:
    if isinstance(column, NumberColumn):
        if isinstance(condition, Within):
            return Within(place, condition.interval)
        values = condition.values if isinstance(condition, Among) else ()
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        return (
            Some(tuple(Within(place, Interval(number, number)) for number in numbers)) if numbers else never
        )
    codes: Sequence[int]
    match condition:
        case Among(_, values):
            codes = sorted({code for value in values if (code := column.code(value)) is not None})
        case Within(_, interval):
            codes = column.codes_within(interval)
        case Under(_, path):
            codes = column.codes_under(path).tolist()
    return Among(place, tuple(codes)) if len(codes) <= _MOST_CODES else None


def _field(column: Column) -> EngineField:
    if isinstance(column, NumberColumn):
        return EngineField(column.values)
    return EngineField(*column.by_row)
