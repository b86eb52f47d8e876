"""Conditions on fields and their combinations, evaluated for all rows or for one item.

Logic has two values: for a row without a value, equality, membership and ranges are false, and their
negations (`none_of`, `not`) true. Conditions are hashable and compare by normalised form, so they serve as
mask-cache keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from turret.tower.catalog.columns import LARGEST, Columns, Interval, Mask, Value, is_under, present_values


class Condition(Protocol):
    """A predicate of items."""

    def __hash__(self) -> int: ...

    def mask(self, catalog: Columns) -> Mask:
        """The rows [N] where it is true; the caller may write into the array."""

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether it is true of an item with these fields."""


@dataclass(frozen=True)
class Among:
    """One of the field's values is one of `values`, which are all of one type."""

    field: str
    values: tuple[Value, ...]

    def mask(self, catalog: Columns) -> Mask:
        return catalog.column(self.field).among([_stored(value) for value in self.values])

    def matches(self, fields: Mapping[str, Any]) -> bool:
        wanted = {_typed(value) for value in self.values}
        return any(_typed(value) in wanted for value in _scalars(fields, self.field))


@dataclass(frozen=True)
class Within:
    """One of the field's values lies in the interval."""

    field: str
    interval: Interval

    def mask(self, catalog: Columns) -> Mask:
        return catalog.column(self.field).within(self.interval)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Whether it is true of one item; a value of another type than the bounds lies in no interval."""
        return any(_lies(value, self.interval) for value in _scalars(fields, self.field))


@dataclass(frozen=True)
class Under:
    """One of the field's texts is the path, or goes on behind it with a separator of levels."""

    field: str
    path: str

    def mask(self, catalog: Columns) -> Mask:
        """See `Condition`."""
        return catalog.column(self.field).under(self.path)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """See `Condition`."""
        texts = (value for value in _scalars(fields, self.field) if isinstance(value, str))
        return any(is_under(text, self.path) for text in texts)


@dataclass(frozen=True)
class Present:
    """The field has a value: not null, and no empty list."""

    field: str

    def mask(self, catalog: Columns) -> Mask:
        return catalog.column(self.field).present()

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return bool(present_values(fields.get(self.field)))


@dataclass(frozen=True)
class Not:
    """Negation."""

    inner: Condition

    def mask(self, catalog: Columns) -> Mask:
        inner = self.inner.mask(catalog)
        return np.logical_not(inner, out=inner)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return not self.inner.matches(fields)


@dataclass(frozen=True)
class Every:
    """Conjunction; true everywhere of no conditions."""

    inner: tuple[Condition, ...]

    def mask(self, catalog: Columns) -> Mask:
        mask = np.ones(len(catalog), dtype=np.bool_)
        for condition in self.inner:
            mask &= condition.mask(catalog)
            if not mask.any():  # contradictions end here
                break
        return mask

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return all(condition.matches(fields) for condition in self.inner)


@dataclass(frozen=True)
class Some:
    """Disjunction; true nowhere of no conditions."""

    inner: tuple[Condition, ...]

    def mask(self, catalog: Columns) -> Mask:
        mask = np.zeros(len(catalog), dtype=np.bool_)
        for condition in self.inner:
            mask |= condition.mask(catalog)
        return mask

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return any(condition.matches(fields) for condition in self.inner)


def every(conditions: Iterable[Condition]) -> Condition:
    """The conjunction, independent of order and repetition."""
    inner = _in_order(conditions)
    return inner[0] if len(inner) == 1 else Every(inner)


def some(conditions: Iterable[Condition]) -> Condition:
    """The disjunction, independent of order and repetition."""
    inner = _in_order(conditions)
    return inner[0] if len(inner) == 1 else Some(inner)


def _in_order(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    return tuple(sorted(set(conditions), key=repr))


def _scalars(fields: Mapping[str, Any], name: str) -> list[Value]:
    """The texts and numbers of a field, numbers as float64, as in the catalog's columns."""
    return [
        value if isinstance(value, str | bool) else float(value)
        for value in present_values(fields.get(name))
        if isinstance(value, str | bool) or (isinstance(value, int | float) and abs(value) <= LARGEST)
    ]


def _stored(value: Value) -> Value:
    return float(value) if isinstance(value, bool) else value


def _typed(value: Value) -> tuple[bool, Value]:
    # Else true would be 1.
    return isinstance(value, bool), value


def _lies(value: Value, interval: Interval) -> bool:
    low, high, low_open, high_open = interval
    bound = high if low is None else low
    if isinstance(value, bool) or isinstance(value, str) != isinstance(bound, str):
        return False
    above = low is None or (value > low if low_open else value >= low)
    return bool(above and (high is None or (value < high if high_open else value <= high)))
