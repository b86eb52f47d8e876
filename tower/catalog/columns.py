"""Typed, memory-mapped columns of the catalog's fields, which filters evaluate for all rows at once."""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.features.texts import BETWEEN, levels
from turret.tower.format.sections import Sections

Mask = NDArray[np.bool_]
LARGEST = 1.7e308  # near the largest float64
# Filters compare numbers with numbers and texts with texts only.
Value = Any
# "texts" and "numbers" are lists; "mixed" supports only `not_null`; "none" has no values.
Kind = Literal["number", "boolean", "text", "numbers", "texts", "mixed", "none"]


class Interval(NamedTuple):
    """Bounds of values, of which one may be None; an open bound lies outside the interval."""

    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False


class Coded(NamedTuple):
    """Values of some rows as pairs, in any order: `codes` [V], and the `places` [V] of their rows.

    Equal values have equal codes, all below `OTHER`.
    """

    places: NDArray[np.int64]
    codes: NDArray[np.int64]


OTHER = 0x7FF0_0000_0000_0001  # above the bits of each float64, and above each position


class NumberColumn:
    """At most one number (or 0 and 1 for false and true) a row.

    `values` is float64 [N], NaN where a row has no value. Masks are bool [N]; such a row is in no mask.
    """

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values = values

    def among(self, values: Sequence[Value]) -> Mask:
        """The rows that have one of `values`."""
        return np.isin(self.values, np.array(values, dtype=np.float64))

    def within(self, interval: Interval) -> Mask:
        """The rows that have a value in the interval."""
        low, high, low_open, high_open = interval
        above = low is None or (self.values > low if low_open else self.values >= low)
        below = high is None or (self.values < high if high_open else self.values <= high)
        mask: Mask = np.logical_and(above, below)
        return mask

    def under(self, path: str) -> Mask:
        """No rows: numbers are no paths."""
        return np.zeros(len(self.values), dtype=np.bool_)

    def coded(self, rows: NDArray[np.integer[Any]]) -> Coded:
        """The distinct values of each of some rows."""
        values = self.values[rows]
        places = np.flatnonzero(~np.isnan(values))
        return Coded(places, _bits(values[places]))

    def code(self, value: Value) -> int | None:
        """The code of a value in `coded`; None where no row can have it."""
        return int(_bits(np.array([value], np.float64))[0])

    def present(self) -> Mask:
        """The rows that have a value."""
        return ~np.isnan(self.values)

    def counts(self) -> tuple[Sequence[Value], NDArray[np.int64]]:
        """The distinct values, ascending, and the number of rows of each."""
        values, counts = np.unique(self.values[self.present()], return_counts=True)
        return values.tolist(), counts


class Texts(Sequence[bytes]):
    """Sorted texts as concatenated UTF-8 bytes."""

    def __init__(self, letters: memoryview, starts: NDArray[np.int64]) -> None:
        self._letters = letters
        self._starts = starts.data

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, position: Any) -> Any:
        return self._letters[self._starts[position] : self._starts[position + 1]].tobytes()


class TermColumn:
    """An inverted index of any number of values a row: ascending `terms`, and the rows that have each.

    A term is a text's UTF-8 or a number. The rows of term i are `rows[starts[i]:starts[i + 1]]`: a value, or
    an interval of values, is a slice. Masks are bool [N], as in `NumberColumn`. `paths` of texts has
    the terms in place of rows, by the lowest of the `levels` of each, unless this level is the whole term.
    """

    def __init__(
        self,
        terms: Sequence[bytes] | Sequence[float] | NDArray[np.float64],
        starts: NDArray[np.int64],
        rows: NDArray[np.int32],
        count: int,
        paths: "TermColumn | None" = None,
    ) -> None:
        self._terms: Any = terms
        self._starts = starts.data
        self._rows = rows
        self._count = count
        self._paths = paths

    def among(self, values: Sequence[Value]) -> Mask:
        return self._mask([code for value in values if (code := self.code(value)) is not None])

    def within(self, interval: Interval) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[self._rows_of(self.codes_within(interval))] = True
        return mask

    def under(self, path: str) -> Mask:
        """The rows that have a text with `path`, as `levels` writes it, among its levels."""
        return self._mask(self.codes_under(path))

    def present(self) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[self._rows] = True
        return mask

    def coded(self, rows: NDArray[np.integer[Any]]) -> Coded:
        codes, starts = self.by_row
        counts, where = _slices(starts, rows)
        return Coded(np.repeat(np.arange(len(rows)), counts), codes[where])

    def counts(self) -> tuple[Sequence[Value], NDArray[np.int64]]:
        return self._terms, np.diff(np.asarray(self._starts))

    def code(self, value: Value) -> int | None:
        """The position of a value among the terms; None where no row has it."""
        term = _term(value)
        position: int = bisect_left(self._terms, term)
        return position if position < len(self._terms) and self._terms[position] == term else None

    def codes_within(self, interval: Interval) -> range:
        """The positions of the terms in an interval."""
        first, last = 0, len(self._terms)
        if interval.low is not None:
            first = self._position(interval.low, after=interval.low_open)
        if interval.high is not None:
            last = self._position(interval.high, after=not interval.high_open)
        return range(first, max(first, last))

    def codes_under(self, path: str) -> NDArray[np.int64]:
        """The ascending positions of the texts that have `path`, as `levels` writes it, among their levels.

        A binary search in sorted texts finds them, however many texts the field has.
        """
        parts: list[NDArray[Any]] = [] if (code := self.code(path)) is None else [np.array([code])]
        if self._paths is not None:
            # Below the path are the texts from "PATH > " up to the first text that does not begin so.
            behind = path + BETWEEN[:-1] + chr(ord(BETWEEN[-1]) + 1)
            intervals = (Interval(path, path), Interval(path + BETWEEN, behind, high_open=True))
            parts += [self._paths._rows_of(self._paths.codes_within(interval)) for interval in intervals]
        return np.unique(np.concatenate([*parts, np.empty(0, np.int64)]))

    @cached_property
    def by_row(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The codes of all rows and their starts: row n has `codes[starts[n]:starts[n + 1]]`, ascending."""
        codes = np.repeat(np.arange(len(self._terms), dtype=np.int64), np.diff(np.asarray(self._starts)))
        return grouped(codes, self._rows, self._count)

    def _mask(self, codes: Sequence[int] | NDArray[np.integer[Any]]) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        _, where = _slices(np.asarray(self._starts), np.asarray(codes, dtype=np.int64))
        mask[self._rows[where]] = True
        return mask

    def _rows_of(self, codes: range) -> NDArray[np.int32]:
        return self._rows[self._starts[codes.start] : self._starts[codes.stop]]

    def _position(self, value: Value, after: bool) -> int:
        """The index of the first term not below `value`, or, with `after`, above it."""
        position: int = bisect_left(self._terms, _term(value))
        return position + (after and self.code(value) is not None)


Column = NumberColumn | TermColumn


class ColumnSummary(NamedTuple):
    """A summary of a field: the number of rows with a value, and of distinct values.

    `frequent` has the most frequent values with the number of their rows, ties in the order of the values.
    `low` and `high` bound numbers; None for texts and for a field without values.
    """

    present: int
    distinct: int
    frequent: tuple[tuple[Value, int], ...]
    low: float | None
    high: float | None


def summary_of(column: Column, most: int) -> ColumnSummary:
    """Summarise a column, with at most `most` of its values."""
    terms, counts = column.counts()
    order = np.argsort(-counts, kind="stable")[:most].tolist()
    frequent = tuple((_value(terms[position]), int(counts[position])) for position in order)
    are_numbers = len(terms) > 0 and not isinstance(terms, Texts)
    low, high = (float(terms[0]), float(terms[-1])) if are_numbers else (None, None)
    return ColumnSummary(int(np.count_nonzero(column.present())), len(terms), frequent, low, high)


class ItemColumn:
    """A field of N items outside a catalog: a column for the values of each type.

    So a filter finds the values of the type that it compares with, and no other values. Masks are like the
    masks of `NumberColumn`.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        pairs: dict[str, list[tuple[Value, int]]] = {"number": [], "boolean": [], "text": [], "mixed": []}
        self._present = np.zeros(len(values), dtype=np.bool_)
        for row, value in enumerate(values):
            for kind, each in typed_values(value):
                pairs[kind].append((each, row))
                self._present[row] = True
        del pairs["mixed"]  # mixed values are not compared with anything
        inverted = {kind: _inverted(some, len(values)) for kind, some in pairs.items()}
        paths = TermColumn(*_paths_of(inverted["text"][0]), len(inverted["text"][0]))
        self._columns = {kind: TermColumn(*arrays, len(values), paths) for kind, arrays in inverted.items()}

    def among(self, values: Sequence[Value]) -> Mask:
        mask = np.zeros(len(self._present), dtype=np.bool_)
        for kind in set(map(scalar_kind, values)):
            mask |= self._columns[kind].among([value for value in values if scalar_kind(value) == kind])
        return mask

    def within(self, interval: Interval) -> Mask:
        bound = interval.high if interval.low is None else interval.low
        return self._columns[scalar_kind(bound)].within(interval)

    def under(self, path: str) -> Mask:
        return self._columns["text"].under(path)

    def present(self) -> Mask:
        return self._present.copy()


class ItemColumns:
    """The fields `names` of items outside a catalog, so that a filter reads many of them at once."""

    def __init__(self, names: Iterable[str], items: Sequence[Mapping[str, Any]]) -> None:
        self._columns = {name: ItemColumn([item.get(name) for item in items]) for name in names}
        self._count = len(items)

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> ItemColumn:
        """The column of a field."""
        return self._columns[name]


def _value(term: bytes | float) -> Value:
    return term.decode("utf-8", "replace") if isinstance(term, bytes) else float(term)


def comparable(value: Any) -> list[Hashable]:
    """The distinct values of a field of an item, in the form that columns have them."""
    kinds = typed_values(value)
    return [*dict.fromkeys(repr(each) if kind == "mixed" else _term(each) for kind, each in kinds)]


def _term(value: Value) -> bytes | float:
    if isinstance(value, bytes):  # a term already
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else float(value)


def kind_of(values: Sequence[Any]) -> Kind:
    """Infer a field's kind from its values, ignoring None and non-finite numbers."""
    kinds = {kind for value in values for kind, _ in typed_values(value)}
    if not kinds:
        return "none"
    kind: Any = kinds.pop() if len(kinds) == 1 else "mixed"
    if any(isinstance(value, list | tuple) for value in values):
        return "texts" if kind == "text" else "numbers" if kind == "number" else "mixed"
    return kind  # type: ignore[no-any-return]


def typed_values(value: Any) -> Iterator[tuple[str, Value]]:
    """The values of a row's field, each with its kind, without null and non-finite numbers."""
    for each in value if isinstance(value, list | tuple) else (value,):
        kind = scalar_kind(each)
        if kind != "none":
            yield kind, each


def scalar_kind(value: Any) -> str:
    """The kind of a single value: "none", "boolean", "text", "number", or "mixed" for anything else."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "number" if abs(value) <= LARGEST else ("none" if isinstance(value, float) else "mixed")
    return "mixed"


def column_arrays(kind: Kind, values: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """The arrays that `open_column` reads."""
    present = [[each for _, each in typed_values(value)] for value in values]
    if kind in ("number", "boolean"):
        return {"numbers": np.array([(*row_values, np.nan)[0] for row_values in present], dtype=np.float64)}
    is_known = kind in ("numbers", "texts", "text")
    pairs = [(each if is_known else "", row) for row, row_values in enumerate(present) for each in row_values]
    terms, starts, rows = _inverted(pairs, len(values))
    if kind == "numbers":
        return {"starts": starts, "rows": rows, "terms": np.array(terms, dtype=np.float64)}
    paths, path_starts, codes = _paths_of(terms)
    return {
        "starts": starts,
        "rows": rows,
        **_letters(terms),
        **{f"paths.{name}": array for name, array in _letters(paths).items()},
        "paths.starts": path_starts,
        "paths.rows": codes,
    }


def _letters(terms: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of `Texts`."""
    return {
        "letters": np.frombuffer(b"".join(terms), dtype=np.uint8),
        "word_starts": _starts([*map(len, terms)]),
    }


def _paths_of(terms: Sequence[bytes]) -> tuple[list[bytes], NDArray[np.int64], NDArray[np.int32]]:
    """The arrays of the `paths` of a `TermColumn` with these terms."""
    split = ((levels(text), text, code) for code, text in enumerate(map(_value, terms)))
    pairs = [(parts[-1], code) for parts, text, code in split if parts not in ([], [text])]
    return _inverted(pairs, len(terms))


def _inverted(
    pairs: Sequence[tuple[Value, int]], count: int
) -> tuple[list[Any], NDArray[np.int64], NDArray[np.int32]]:
    """The ascending terms of (value, row) pairs of one type, and the starts and rows of a `TermColumn`."""
    distinct = {value: _term(value) for value, _ in pairs}
    terms: list[Any] = sorted(set(distinct.values()))
    codes = {term: position for position, term in enumerate(terms)}
    code = {value: codes[term] for value, term in distinct.items()}
    keys = np.unique(np.array([code[value] * count + row for value, row in pairs], dtype=np.int64))
    counts = np.bincount(keys // max(1, count), minlength=len(terms))
    return terms, _starts(counts), (keys % max(1, count)).astype(np.int32)


def open_column(kind: Kind, name: str, sections: Sections, count: int) -> Column:
    """Open the arrays of `column_arrays`, stored as `<name>.<array>`, for a catalog of `count` items.

    Raises BundleError when they don't fit.
    """
    if kind in ("number", "boolean"):
        return NumberColumn(sections.array(f"{name}.numbers", "float64", count))
    if kind == "numbers":
        terms = sections.array(f"{name}.terms", "float64")
        return TermColumn(terms, *_lists(name, sections, len(terms), count), count)
    texts, paths = _texts(name, sections), _texts(f"{name}.paths", sections)
    lists = _lists(f"{name}.paths", sections, len(paths), len(texts))
    lowest = TermColumn(paths, *lists, len(texts))
    return TermColumn(texts, *_lists(name, sections, len(texts), count), count, lowest)


def _texts(name: str, sections: Sections) -> Texts:
    letters = sections.array(f"{name}.letters", "uint8")
    return Texts(letters.data, sections.starts(f"{name}.word_starts", len(letters)))


def _lists(
    name: str, sections: Sections, terms: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The starts and the rows of terms, all below `count`."""
    rows = sections.array(f"{name}.rows", "int32")
    if len(rows) and not 0 <= rows.min() <= rows.max() < count:
        raise sections.fault(f"{name}.rows", f"names other rows than those below {count}")
    return sections.starts(f"{name}.starts", len(rows), terms + 1), rows


def grouped(
    values: NDArray[np.int64], owners: NDArray[np.integer[Any]], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The values [V] by their owners [V], below `count`, and where those of each owner start [count + 1]."""
    return values[np.argsort(owners, kind="stable")], _starts(np.bincount(owners, minlength=count))


def _slices(
    starts: NDArray[np.int64], picked: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lengths of the slices `starts[i]:starts[i + 1]` of each i of `picked`, and their positions."""
    counts = starts[picked + 1] - starts[picked]
    ends = np.cumsum(counts)
    return counts, np.repeat(starts[picked + 1] - ends, counts) + np.arange(counts.sum())


def _bits(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return (values + 0.0).view(np.int64)  # the sum gives 0.0 and -0.0 the same bits


def _starts(lengths: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
