"""Filters in the terms of an engine: the condition on each item as sets of codes and ranges of numbers.

The texts of a field are numbered in their order, so that an engine stores and compares integers: no text has
to be escaped in a query language, and a range of texts is a range of codes.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class AnyCode:
    """The item has one of the codes, ascending, in a field of codes; false for no codes."""

    field: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class InRange:
    """The item has a number in the interval, in a field of numbers; an open bound is not inside."""

    field: int
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True)
class HasValue:
    """The item has any value in the field."""

    field: int


@dataclass(frozen=True)
class NotMet:
    """Negation: true for every other item, also for one without a value."""

    inner: "Where"


@dataclass(frozen=True)
class AllMet:
    """Conjunction of at least one."""

    inner: tuple["Where", ...]


@dataclass(frozen=True)
class AnyMet:
    """Disjunction of at least one."""

    inner: tuple["Where", ...]


Where: TypeAlias = AnyCode | InRange | HasValue | NotMet | AllMet | AnyMet
