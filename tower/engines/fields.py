"""The catalog in the terms of an engine: its columns as fields, its conditions as those on such fields.

There a field is named by its place, and the texts of a field are numbered in their order, so that an engine
stores and compares integers: no text has to be escaped in a query language, and a range of texts is a range
of codes. `Among` holds codes, and `Within` bounds numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Column, Columns, Interval, Mask, NumberColumn, TermColumn
from turret.tower.catalog.conditions import Among, Condition, Every, Not, Present, Some, Under, Within
from turret.tower.engines.engine import EngineField

# A longer list of codes costs an engine more than the exact search among the rows.
_MOST_CODES = 1000
_NO_INTEGERS: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def engine_fields(catalog: Catalog) -> list[EngineField]:
    """The fields of a catalog in its order, and behind them the draw (see `drawn`)."""
    columns = [catalog.column(name) for name in catalog.field_names]
    fields = [_field(column, len(catalog)) for column in columns]
    return [*fields, _numbers(drawn(len(catalog)).astype(np.float64))]


def drawn(count: int) -> NDArray[np.int64]:
    """A permutation of `count` rows with a fixed seed: those with a place below n are a uniform sample."""
    return np.random.default_rng(0).permutation(count)


def where_of(condition: Condition, catalog: Catalog) -> Condition | None:
    """A condition in the terms of the engine; None for one that it can't say exactly."""
    return _Translator(catalog).where(condition)


@dataclass(frozen=True)
class Drawn:
    """The condition that an item's place in the draw is below `count`; it measures recall by selectivity."""

    count: int

    def mask(self, catalog: Columns) -> Mask:
        return drawn(len(catalog)) < self.count

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """An item that is not in the catalog has no place in the draw."""
        return False


class _Translator:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._places = {name: str(place) for place, name in enumerate(catalog.field_names)}
        self._draw = str(len(self._places))
        self._always = Present(self._draw)  # every item has a place in the draw

    def where(self, condition: Condition) -> Condition | None:
        match condition:
            case Not(inner):
                met = self.where(inner)
                return None if met is None else Not(met)
            case Every(inner):
                return self._combined(inner, Every, self._always)
            case Some(inner):
                return self._combined(inner, Some, Not(self._always))
            case Drawn(count):
                return Within(self._draw, Interval(None, float(count), high_open=True))
            case Present(field):
                return Present(self._places[field])
            case Among(field, values):
                return self._among(field, values)
            case Within(field, interval):
                return self._within(field, interval)
            case Under(field, path):
                return self._codes(field, path)
        return None

    def _combined(
        self, inner: Iterable[Condition], combine: type[Every] | type[Some], empty: Condition
    ) -> Condition | None:
        parts = [self.where(one) for one in inner]
        met = tuple(part for part in parts if part is not None)
        if len(met) < len(parts):
            return None
        return combine(met) if met else empty

    def _among(self, field: str, values: Iterable[object]) -> Condition | None:
        place, column = self._places[field], self._catalog.column(field)
        if isinstance(column, NumberColumn):
            numbers = [float(value) for value in values if isinstance(value, int | float)]
            met = tuple(Within(place, Interval(number, number)) for number in numbers)
            return Some(met) if met else Not(self._always)
        if isinstance(column, TermColumn):
            codes = [code for value in values if (code := column.code(value)) is not None]
            return Among(place, tuple(sorted(set(codes))))
        return None

    def _codes(self, field: str, path: str) -> Condition | None:
        column = self._catalog.column(field)
        codes = column.codes_under(path) if isinstance(column, TermColumn) else []
        return Among(self._places[field], tuple(codes)) if len(codes) <= _MOST_CODES else None

    def _within(self, field: str, interval: Interval) -> Condition | None:
        place, column = self._places[field], self._catalog.column(field)
        if isinstance(column, NumberColumn):
            return Within(place, interval)
        if isinstance(column, TermColumn):
            codes = column.codes_within(interval)
            return Among(place, tuple(codes)) if len(codes) <= _MOST_CODES else None
        return None


def _field(column: Column, count: int) -> EngineField:
    if isinstance(column, NumberColumn):
        return _numbers(column.values)
    if isinstance(column, TermColumn):
        codes, starts = column.by_row()
        return EngineField("codes", np.empty(0), codes, starts)
    raise TypeError(f"a column of {type(column).__name__} has no form in an engine")


def _numbers(values: NDArray[np.float64]) -> EngineField:
    return EngineField("number", values, _NO_INTEGERS, _NO_INTEGERS)
