"""Filters on the fields of the catalog: from JSON to allowed rows.

`{"genres": {"any_of": ["Drama"]}, "year": {"gte": 1990, "lt": 2000}}`; docs/filters.md describes
the operators.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from turret.data.features.texts import levels
from turret.tower.catalog.catalog import Catalog
from turret.tower.catalog.columns import Interval, Kind, Mask, Value, scalar_kind
from turret.tower.catalog.conditions import Among, Condition, Not, Present, Under, Within, every, some
from turret.tower.catalog.masks import RowMask
from turret.tower.errors import MOST_OTHERS, FilterError, first_with_others

# The limits are above any hand-written filter, and low enough that no filter takes long.
MAX_DEPTH, MAX_CONDITIONS, MAX_VALUES = 8, 100, 1000
_OPERATORS = ("equals", "any_of", "none_of", "under", "not_null")
_UNREAD = every(())
_BOUNDS = {"gte": (0, False), "gt": (0, True), "lte": (1, False), "lt": (1, True)}
# The values that conditions on a field take, by the kind of the field without the "s" of lists.
_TAKES = {
    "number": "a finite number",
    "text": "a text",
    "boolean": "true or false",
    "none": "a text, a finite number, true or false",
}


class Filter:
    """A condition on the items of one catalog."""

    def __init__(self, condition: Condition, catalog: Catalog) -> None:
        self.condition = condition
        self.catalog = catalog

    def allowed(self) -> RowMask:
        """The allowed rows of the catalog, cached by it."""
        return self.cached(None, lambda: self.condition.mask(self.catalog))

    def cached(self, rows: Hashable, make: Callable[[], Mask]) -> RowMask:
        """The mask of this condition for other `rows` than the catalog's, kept in the catalog's cache.

        `rows` is the key of the rows; equal conditions share a mask.
        """
        return self.catalog.masks.get((rows, self.condition), make, self)


def compile_filter(content: Mapping[str, Any], catalog: Catalog) -> Filter:
    """Parse a filter for a catalog. Raises as `compile_filters`."""
    (filtering,) = compile_filters({"filter": content}, catalog)
    return filtering


def compile_filters(contents: Mapping[str, Mapping[str, Any]], catalog: Catalog) -> list[Filter]:
    """Parse filters, by their places in a request, for a catalog; the limits hold for all of them together.

    Raises FilterError, with the path and the value, for an unknown field or operator, a value of another type
    than the field's, and filters that are too deep or too large.
    """
    reader = _Reader(catalog)
    conditions = [reader.noting(reader.read, content, where, 1) for where, content in contents.items()]
    if reader.faults:
        raise first_with_others(reader.faults)
    return [Filter(condition, catalog) for condition in conditions]


class _Reader:
    """Parses one filter, counting its conditions and values; behind a fault it goes on with the next part."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._conditions = self._values = 0
        self.faults: list[FilterError] = []

    def noting(self, read: Callable[..., Condition], *arguments: Any) -> Condition:
        """Read a part of the filter, and add its error, if it has one, to `faults`.

        After more than `MOST_OTHERS` faults, or beyond the limits of a filter, nothing more is read.
        """
        is_small = self._conditions <= MAX_CONDITIONS and self._values <= MAX_VALUES
        if is_small and len(self.faults) <= MOST_OTHERS:
            try:
                return read(*arguments)
            except FilterError as error:
                self.faults.append(error.with_traceback(None))
        return _UNREAD

    def read(self, content: Any, where: str, depth: int) -> Condition:
        if not isinstance(content, Mapping):
            raise FilterError(
                where, content, f"{where} takes an object such as {{'genres': {{'any_of': [...]}}}}"
            )
        if depth > MAX_DEPTH:
            raise FilterError(where, None, f"{where} is nested deeper than {MAX_DEPTH}; write it flatter")
        return every(
            self.noting(self._part, name, value, f"{where}.{name}", depth) for name, value in content.items()
        )

    def _part(self, name: str, value: Any, where: str, depth: int) -> Condition:
        if name == "not":
            return Not(self.read(value, where, depth + 1))
        if name in ("all", "any"):
            if not isinstance(value, list):
                raise FilterError(where, value, f"{where} takes a list of filters")
            inner = [self.noting(self.read, part, f"{where}.{n}", depth + 1) for n, part in enumerate(value)]
            self._count(len(inner), where)
            return every(inner) if name == "all" else some(inner)
        kind = self._catalog.kinds.get(name)
        if kind is None:
            raise FilterError(where, value, _unknown(name, self._catalog))
        return self._field(name, kind, value, where)

    def _field(self, name: str, kind: Kind, operators: Any, where: str) -> Condition:
        if not isinstance(operators, Mapping) or not operators:
            raise FilterError(
                where, operators, f"{where} takes an object of {', '.join(_OPERATORS)} or bounds"
            )
        self._count(len(operators), where)
        conditions = [
            self.noting(self._operator, name, kind, operator, value, f"{where}.{operator}")
            for operator, value in operators.items()
            if operator not in _BOUNDS
        ]
        bounds = {operator: value for operator, value in operators.items() if operator in _BOUNDS}
        if bounds:
            conditions.append(self.noting(_within, name, kind, bounds, where))
        return every(conditions)

    def _operator(self, name: str, kind: Kind, operator: str, value: Any, where: str) -> Condition:
        if operator not in _OPERATORS:
            known = ", ".join([*_OPERATORS, *_BOUNDS])
            raise FilterError(where, value, f"there is no operator {operator!r}; there are: {known}")
        if operator == "not_null":
            if not isinstance(value, bool):
                raise FilterError(where, value, f"{where} takes true, or false for items without a value")
            return Present(name) if value else Not(Present(name))
        if operator == "under":
            return _under(name, kind, value, where)
        if operator != "equals" and not isinstance(value, list):
            raise FilterError(where, value, f"{where} takes a list of values")
        if kind == "mixed":  # also for an empty list: the field alone decides
            raise FilterError(where, value, _mixed(where))
        values = [value] if operator == "equals" else value
        self._values += len(values)
        if self._values > MAX_VALUES:
            raise FilterError(where, None, f"a filter holds at most {MAX_VALUES} values; send fewer")
        among = Among(name, _distinct([_value(kind, member, where) for member in values]))
        return Not(among) if operator == "none_of" else among

    def _count(self, more: int, where: str) -> None:
        self._conditions += more
        if self._conditions > MAX_CONDITIONS:
            raise FilterError(where, None, f"a filter holds at most {MAX_CONDITIONS} conditions; send fewer")


def _under(name: str, kind: Kind, value: Any, where: str) -> Condition:
    if not isinstance(value, str) or not levels(value):
        raise FilterError(where, value, f"{where} takes a path, such as 'Women > Shoes'")
    if kind not in ("text", "texts", "none"):
        raise FilterError(where, value, f"{where}: this field holds no texts, so it has no paths")
    return Under(name, levels(value)[-1])


def _within(name: str, kind: Kind, bounds: Mapping[str, Any], where: str) -> Condition:
    """The intersection of all bounds."""
    if kind == "boolean":
        raise FilterError(where, None, f"{where} holds true and false, which have no order; use equals")
    values: list[list[tuple[Any, bool]]] = [[], []]
    for operator, value in bounds.items():
        side, is_open = _BOUNDS[operator]
        if isinstance(value, bool):
            raise FilterError(f"{where}.{operator}", value, f"{where}.{operator} takes a number or a text")
        values[side].append((_value(kind, value, f"{where}.{operator}"), is_open))
    if len({isinstance(value, str) for side in values for value, _ in side}) > 1:
        raise FilterError(where, None, f"{where} mixes numbers and texts; give bounds of one type")
    low, low_open = max(values[0], default=(None, False))
    high, high_open = min(values[1], key=lambda bound: (bound[0], not bound[1]), default=(None, False))
    return Within(name, Interval(low, high, low_open, high_open))


def _value(kind: Kind, value: Any, where: str) -> Value:
    wanted, actual = kind.removesuffix("s"), scalar_kind(value)
    if wanted == "mixed":
        raise FilterError(where, value, _mixed(where))
    if actual not in ((wanted,) if wanted != "none" else ("number", "text", "boolean")):
        raise FilterError(where, value, f"{where} takes {_TAKES[wanted]}")
    return float(value) if actual == "number" else value


def _mixed(where: str) -> str:
    return f"{where}: this field holds values of several types; it supports only not_null"


def _distinct(values: list[Value]) -> tuple[Value, ...]:
    by_type = {(type(value), value): value for value in values}  # true is not 1
    return tuple(sorted(by_type.values(), key=repr))


def _unknown(name: str, catalog: Catalog) -> str:
    known = ", ".join(catalog.kinds)
    return f"the catalog has no field {str(name)[:80]!r}; " + (
        f"it has: {known}" if known else "it has no fields"
    )
