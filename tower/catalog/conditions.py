"""Conditions on fields and their combinations, evaluated for many items at once.

Logic has two values: for a row without a value, equality, membership and ranges are false, and their
negations (`none_of`, `not`) true. Conditions are hashable and compare by normalised form, so they serve as
mask-cache keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

import numpy as np

from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Interval, ItemColumns, Mask, Value

# A condition is evaluated for the items of either class.
Columns = Catalog | ItemColumns


class Condition(Protocol):
    """A predicate of items."""

    def __hash__(self) -> int: ...

    def mask(self, items: Columns) -> Mask:
        """The mask [N] of the items that meet the condition; the caller may write into the array."""


class _Keyed:
    """Compares by `key`, a digest of the values with their types (true is not 1), which is computed once.

    So a condition that is part of many filters, as a stored rule is, costs each of them a comparison.
    """

    @cached_property
    def key(self) -> str:
        fields = {name: value for name, value in vars(self).items() if name != "key"}
        content = f"{type(self).__name__}{fields!r}".encode("utf-8", "surrogatepass")
        return blake2b(content, digest_size=20).hexdigest()

    def __repr__(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False, repr=False)
class Among(_Keyed):
    """One of the field's values is one of `values`."""

    field: str
    values: tuple[Value, ...]

    def mask(self, items: Columns) -> Mask:
        return items.column(self.field).among(self.values)


@dataclass(frozen=True, eq=False, repr=False)
class Within(_Keyed):
    """One of the field's values lies in the interval."""

    field: str
    interval: Interval

    def mask(self, items: Columns) -> Mask:
        return items.column(self.field).within(self.interval)


@dataclass(frozen=True, eq=False, repr=False)
class Under(_Keyed):
    """One of the field's texts is the path, or goes on behind it with a separator of levels."""

    field: str
    path: str

    def mask(self, items: Columns) -> Mask:
        return items.column(self.field).under(self.path)


@dataclass(frozen=True, eq=False, repr=False)
class Present(_Keyed):
    """The field has a value: not null, and no empty list."""

    field: str

    def mask(self, items: Columns) -> Mask:
        return items.column(self.field).present()


@dataclass(frozen=True, eq=False, repr=False)
class Not(_Keyed):
    """Negation."""

    inner: Condition

    def mask(self, items: Columns) -> Mask:
        inner = self.inner.mask(items)
        return np.logical_not(inner, out=inner)


@dataclass(frozen=True, eq=False, repr=False)
class Every(_Keyed):
    """Conjunction; without conditions it is true everywhere."""

    inner: tuple[Condition, ...]

    def mask(self, items: Columns) -> Mask:
        mask = np.ones(len(items), dtype=np.bool_)
        for condition in self.inner:
            mask &= condition.mask(items)
            if not mask.any():  # contradictions end here
                break
        return mask


@dataclass(frozen=True, eq=False, repr=False)
class Some(_Keyed):
    """Disjunction; without conditions it is true nowhere."""

    inner: tuple[Condition, ...]

    def mask(self, items: Columns) -> Mask:
        mask = np.zeros(len(items), dtype=np.bool_)
        for condition in self.inner:
            mask |= condition.mask(items)
        return mask


@dataclass(frozen=True, eq=False, repr=False)
class Kept(_Keyed):
    """`inner` with a mask that a catalog caches: a rule, with which requests combine their own filters."""

    inner: Condition

    def mask(self, items: Columns) -> Mask:
        if not isinstance(items, Catalog):
            return self.inner.mask(items)
        return items.masks.get((None, self.inner), lambda: self.inner.mask(items)).mask.copy()


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
