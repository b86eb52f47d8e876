"""Typed, memory-mapped columns of the catalog's fields, which filters evaluate for all rows at once."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from turret.data.features import levels
from turret.tower.format.sections import Sections

Mask = NDArray[np.bool_]
LARGEST = 1.7e308  # near the largest float64
# Filters compare numbers with numbers and texts with texts only.
Value = Any
# "texts" and "numbers" are lists; "mixed" supports only `not_null`; "none" has no values.
Kind = Literal["number", "boolean", "text", "numbers", "texts", "mixed", "none"]


class Interval(NamedTuple):
    """Bounds, of which either may be None; an open one is not inside."""

    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False


class ColumnSummary(NamedTuple):
    """What a field holds: rows with a value, and distinct values.

    `frequent` has the most frequent values with the number of their rows, ties in the order of the values.
    `low` and `high` bound numbers; None for texts and for a field without values.
    """

    present: int
    distinct: int
    frequent: tuple[tuple[Value, int], ...] = ()
    low: float | None = None
    high: float | None = None


class Column(Protocol):
    """One field. A row without a value is in none of the masks."""

    def among(self, values: Sequence[Value]) -> Mask:
        """The rows [N] that have one of `values`."""

    def within(self, interval: Interval) -> Mask:
        """The rows [N] that have a value in the interval."""

    def under(self, path: str) -> Mask:
        """The rows [N] that have a text which is `path` or below it; see `is_under`."""

    def present(self) -> Mask:
        """The rows [N] that have any value."""

    def summary(self, most: int) -> ColumnSummary:
        """Summarise the values, with at most `most` of them."""


class Columns(Protocol):
    """N items, as filters read them: a catalog, or items outside it."""

    def column(self, name: str) -> Column:
        """The column of a field."""

    def __len__(self) -> int: ...


class NumberColumn:
    """At most one number (or 0 and 1 for false and true) a row: float64 [N], NaN where it is missing."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self._values = values

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers [N], NaN where one is missing."""
        return self._values

    def among(self, values: Sequence[Value]) -> Mask:
        return np.isin(self._values, np.array(values, dtype=np.float64))

    def within(self, interval: Interval) -> Mask:
        low, high, low_open, high_open = interval
        mask = ~np.isnan(self._values) if low is None and high is None else None
        if low is not None:
            mask = self._values > low if low_open else self._values >= low
        if high is not None:
            below = self._values < high if high_open else self._values <= high
            mask = below if mask is None else np.logical_and(mask, below, out=mask)
        assert mask is not None
        return mask

    def under(self, path: str) -> Mask:
        return np.zeros(len(self._values), dtype=np.bool_)

    def present(self) -> Mask:
        return ~np.isnan(self._values)

    def summary(self, most: int) -> ColumnSummary:
        values, counts = np.unique(self._values[self.present()], return_counts=True)
        if not len(values):
            return ColumnSummary(0, 0)
        order = np.argsort(-counts, kind="stable")[:most]
        frequent = tuple(zip(values[order].tolist(), counts[order].tolist(), strict=True))
        return ColumnSummary(int(counts.sum()), len(values), frequent, float(values[0]), float(values[-1]))


class Texts:
    """Sorted texts as concatenated UTF-8 bytes."""

    def __init__(self, letters: memoryview, starts: NDArray[np.int64]) -> None:
        self._letters = letters
        self._starts = starts.data

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, position: int) -> bytes:
        return self._letters[self._starts[position] : self._starts[position + 1]].tobytes()


class TermColumn:
    """An inverted index of any number of values a row: ascending `terms`, and the rows that have each.

    The rows of term i are `rows[starts[i]:starts[i + 1]]`: a value, or an interval of values, is a slice.
    """

    def __init__(
        self,
        terms: Texts | NDArray[np.float64],
        starts: NDArray[np.int64],
        rows: NDArray[np.int32],
        count: int,
    ) -> None:
        self._terms = terms
        self._starts = starts.data
        self._rows = rows
        self._count = count

    def among(self, values: Sequence[Value]) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        for value in values:
            code = self.code(value)
            if code is not None:
                mask[self._rows[self._starts[code] : self._starts[code + 1]]] = True
        return mask

    def within(self, interval: Interval) -> Mask:
        """See `Column`; texts are ordered by their code points."""
        codes = self.codes_within(interval)
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[self._rows[self._starts[codes.start] : self._starts[codes.stop]]] = True
        return mask

    def under(self, path: str) -> Mask:
        """See `Column`."""
        mask = np.zeros(self._count, dtype=np.bool_)
        for code in self.codes_under(path):
            mask[self._rows[self._starts[code] : self._starts[code + 1]]] = True
        return mask

    def present(self) -> Mask:
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[self._rows] = True
        return mask

    def summary(self, most: int) -> ColumnSummary:
        counts = np.diff(np.asarray(self._starts))
        order = np.argsort(-counts, kind="stable")[:most].tolist()
        frequent = tuple((_value(self._terms[position]), int(counts[position])) for position in order)
        present = int(np.count_nonzero(self.present()))
        if isinstance(self._terms, Texts) or not len(self._terms):
            return ColumnSummary(present, len(self._terms), frequent)
        return ColumnSummary(
            present, len(self._terms), frequent, float(self._terms[0]), float(self._terms[-1])
        )

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

    def codes_under(self, path: str) -> list[int]:
        """The positions of the texts that are `path`, or go on behind it with a separator of levels."""
        if not isinstance(self._terms, Texts):
            return []
        first = levels(path)[0]
        within = self.codes_within(Interval(first, first + "\U0010ffff"))
        return [code for code in within if is_under(self._terms[code].decode("utf-8", "replace"), path)]

    def by_row(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The codes of each row: those of row n are `codes[starts[n]:starts[n + 1]]`, ascending."""
        codes = np.repeat(np.arange(len(self._terms), dtype=np.int64), np.diff(np.asarray(self._starts)))
        order = np.argsort(self._rows, kind="stable")
        return codes[order], _starts(np.bincount(self._rows, minlength=self._count))

    def _position(self, value: Value, after: bool) -> int:
        """The index of the first term not below `value`, or, with `after`, above it."""
        position: int = bisect_left(self._terms, _term(value))
        return position + (after and self.code(value) is not None)


def is_under(text: str, path: str) -> bool:
    """Whether a path of levels is `path` or below it.

    >>> [is_under(text, "Women") for text in ("Women", "Women > Shoes", "Women's Shoes")]
    [True, True, False]
    """
    return levels(path)[-1] in levels(text)


def _value(term: bytes | float) -> Value:
    return term.decode("utf-8", "replace") if isinstance(term, bytes) else float(term)


def _term(value: Value) -> bytes | float:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def kind_of(values: Iterable[Any]) -> Kind:
    """Infer a field's kind from its values, ignoring None and non-finite numbers."""
    kinds: set[str] = set()
    is_list = False
    for value in values:
        if isinstance(value, list | tuple):
            is_list = True
            kinds.update(_scalar(each) for each in value)
        else:
            kinds.add(_scalar(value))
    kinds.discard("none")
    if not kinds:
        return "none"
    (kind,) = kinds if len(kinds) == 1 else ("mixed",)
    if is_list and kind in ("text", "number"):
        return "texts" if kind == "text" else "numbers"
    return "mixed" if is_list else kind  # type: ignore[return-value]


def present_values(value: Any) -> list[Any]:
    """The values of a row's field as a list, without null and non-finite numbers."""
    several = value if isinstance(value, list | tuple) else (value,)
    return [each for each in several if _scalar(each) != "none"]


def _scalar(value: Any) -> str:
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
    if kind in ("number", "boolean"):
        numbers = [(*present_values(value), np.nan)[0] for value in values]
        return {"numbers": np.array(numbers, dtype=np.float64)}
    pairs = [(each, row) for row, value in enumerate(values) for each in present_values(value)]
    if kind in ("mixed", "none"):
        pairs = [("", row) for _, row in pairs]
    terms = sorted({value for value, _ in pairs})
    code = {value: position for position, value in enumerate(terms)}
    count = max(1, len(values))
    keys = np.unique(np.array([code[value] * count + row for value, row in pairs], dtype=np.int64))
    counts = np.bincount(keys // count, minlength=len(terms))
    arrays: dict[str, NDArray[Any]] = {"starts": _starts(counts), "rows": (keys % count).astype(np.int32)}
    if kind == "numbers":
        return {**arrays, "terms": np.array(terms, dtype=np.float64)}
    texts = [term.encode("utf-8") for term in terms]
    letters = np.frombuffer(b"".join(texts), dtype=np.uint8)
    return {**arrays, "letters": letters, "word_starts": _starts([len(text) for text in texts])}


def open_column(kind: Kind, name: str, sections: Sections, count: int) -> Column:
    """Open the arrays of `column_arrays`, stored as `<name>.<array>`, for a catalog of `count` items.

    Raises BundleError when it doesn't fit.
    """
    if kind in ("number", "boolean"):
        return NumberColumn(sections.array(f"{name}.numbers", "float64", count))
    rows = sections.array(f"{name}.rows", "int32")
    terms: Texts | NDArray[np.float64]
    if kind == "numbers":
        terms = sections.array(f"{name}.terms", "float64")
    else:
        letters = sections.array(f"{name}.letters", "uint8")
        terms = Texts(letters.data, sections.array(f"{name}.word_starts", "int64"))
    return TermColumn(terms, sections.array(f"{name}.starts", "int64", len(terms) + 1), rows, count)


def _starts(lengths: Any) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
