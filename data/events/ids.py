"""Ids: the keys of a column, the numbers of distinct keys, and their vocabulary."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ColumnError, brief
from turret.data.events.dropped_rows import INEXACT, ROUNDED
from turret.data.reading.columns import ONE_ROW_AN_EVENT
from turret.data.reading.numbers import SCIENTIFIC, is_rounded
from turret.data.reading.source_settings import NULLS, nulls_of
from turret.data.rows import Rows
from turret.data.vocabulary import BLANKS, NORMAL_FORM, Vocabulary, is_canonical_integer


class IdInterner:
    """Distinct Int64 or String ids, numbered 0, 1, ... in the order of their discovery.

    The key of an integer is the integer, the key of a text is a hash; known keys are kept sorted, and each
    piece of ids is merged with them. A join in polars of each piece with the known ids takes twice as long,
    as it hashes all known ids again: 3.1 s instead of 1.7 s for the integers of ten million events of five
    million users.

    Texts are compared on look-up, and those that share the hash of another text are kept in a dictionary, so
    numbers are exact for any hash function.
    """

    def __init__(self, dtype: pl.DataType) -> None:
        self.ids = pl.Series("id", dtype=dtype)
        """All known ids, by number."""
        self._keys = np.empty(0, dtype=np.uint64)  # ascending
        self._numbers = np.empty(0, dtype=np.int32)  # by key
        self._collisions: dict[str, int] = {}

    def numbers(self, ids: pl.Series) -> NDArray[np.int32]:
        """Return the numbers [B] of non-null `ids` [B]; new ids get the next numbers."""
        keys: NDArray[np.uint64]
        keys = ids.hash().to_numpy() if ids.dtype == pl.String else ids.to_numpy().view(np.uint64)
        order = np.argsort(keys)
        # Sorted keys are found many times faster: neighbours are in one line of the cache.
        ordered = keys[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
        distinct = ordered[starts]
        places = np.searchsorted(self._keys, distinct)
        is_new = places == np.searchsorted(self._keys, distinct, side="right")
        if is_new.any():
            first = len(self.ids)
            self.ids.extend(ids.gather(order[starts[is_new]]))
            self._keys = np.insert(self._keys, places[is_new], distinct[is_new])
            self._numbers = np.insert(
                self._numbers, places[is_new], np.arange(first, len(self.ids), dtype=np.int32)
            )
            places += np.cumsum(is_new) - is_new
        numbers = np.empty(len(ids), dtype=np.int32)
        numbers[order] = np.repeat(self._numbers[places], np.diff(starts, append=len(order)))
        if ids.dtype == pl.String:
            stored = self.ids.gather(numbers.view(np.uint32))
            for position in (stored != ids).arg_true():
                numbers[position] = self._collision(ids[position])
        return numbers

    def _collision(self, text: str) -> int:
        if text not in self._collisions:
            self._collisions[text] = len(self.ids)
            self.ids.extend(pl.Series([text]))
        return self._collisions[text]


# From these bounds on, several whole numbers share one value of the type.
_INEXACT_FROM: dict[pl.DataType, int] = {pl.Float16(): 2**11, pl.Float32(): 2**24, pl.Float64(): 2**53}
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_NUMBER = r"^-?(?:(?:0|[1-9]\d{0,15})(?:\.0)?|[1-9](?:\.\d+)?e\+\d+)$"
_SAMPLE = 1000


@dataclass(frozen=True)
class IdColumn:
    """A column of ids, `raw` in a frame and `name` in its source.

    `nulls` are the texts that are no ids. `is_float`: in some rows, whole numbers in texts print as floats,
    such as 1000.0, as pandas writes integers of a column that has, or had, a missing value. `is_scientific`:
    some rows have an exponent, such as 8.71112E+12. `is_changed`: some ids have blanks around them, or
    another Unicode form.
    """

    raw: str
    name: str
    dtype: pl.DataType
    nulls: Sequence[str] = NULLS
    is_float: bool = False
    is_scientific: bool = False
    is_changed: bool = False

    def key(self) -> pl.Expr:
        """Return the ids as Int64 if the column has integers, else as text; `nulls` are null.

        Whole numbers of other types print as integers, and fractional values are null: pandas turns integers
        beside nulls into floats, and databases export them as decimals. Floats that are too large to tell
        neighbours apart, and numbers that a spreadsheet rounded, are null too. Texts have no blanks around
        them, and one Unicode form. Integers of types wider than Int64 become texts. Raises ColumnError for
        other types.
        """
        value, dtype = pl.col(self.raw), self.dtype
        if dtype.is_integer():
            if dtype in (pl.UInt64, pl.Int128, pl.UInt128):
                return self._without_nulls(value).cast(pl.String)
            return self._without_nulls(value.cast(pl.Int64))
        if dtype.is_decimal():
            digits = value.cast(pl.String).str.replace(r"\.0+$", "")
            return pl.when(~digits.str.contains(".", literal=True) & ~digits.is_in(self.nulls)).then(digits)
        if self.is_float:
            text = value.cast(pl.String).str.strip_chars()
            value, dtype = text.cast(pl.Float64, strict=False), pl.Float64()
            value = pl.when(~is_rounded(text)).then(value) if self.is_scientific else value
        if dtype.is_float():
            whole = pl.when((value == value.floor()) & ~_is_inexact(value, dtype)).then(value)
            return self._without_nulls(whole.cast(pl.Int64, strict=False)).cast(pl.String)
        if dtype in _TEXTS:
            text = value.cast(pl.String).map_batches(_plain, return_dtype=pl.String, is_elementwise=True)
            is_id = ~text.is_in(["", *self.nulls])
            return pl.when(is_id & ~is_rounded(text) if self.is_scientific else is_id).then(text)
        remedy = (
            ONE_ROW_AN_EVENT if dtype.is_nested() else "cast them to one of these, or name another column"
        )
        raise ColumnError(
            f"column {self.name!r} holds {brief(dtype)}, but ids have to be integers or text; {remedy}"
        )

    def verdicts(self, key: str, role: str) -> list[tuple[pl.Expr, str]]:
        """Return the conditions of rows without a value in the column `key`; the first that holds decides."""
        if self.dtype.is_integer():
            return [(pl.col(key).is_null(), f"null {role}")]
        is_float = self.is_float or self.dtype.is_float()
        text = pl.col(self.raw).cast(pl.String).fill_null("").str.strip_chars()
        text = text.str.replace(r"\.0$", "") if is_float else text
        is_inexact = _is_inexact(pl.col(self.raw), self.dtype) if is_float else pl.lit(False)
        return [
            (text.is_in(["", *self.nulls]), f"null {role}"),
            (is_inexact, f"{role} {INEXACT}"),
            (is_rounded(text) if self.is_scientific else pl.lit(False), f"{role} {ROUNDED}"),
            (pl.col(key).is_null(), f"unreadable {role}"),
        ]

    def _without_nulls(self, integers: pl.Expr) -> pl.Expr:
        values = [int(text) for text in self.nulls if is_canonical_integer(text)]
        return pl.when(~integers.is_in(values)).then(integers) if values else integers


def id_columns(rows: Rows, names: Mapping[str, str], nulls: Sequence[str]) -> dict[str, IdColumn]:
    """Return the id columns of `rows` by their names there; `names` has the names in the source.

    `nulls` are entries TEXT and COLUMN=TEXT of texts that are no ids.
    """
    schema = rows.schema()
    columns = {raw: IdColumn(raw, name, schema[raw], nulls_of(nulls, name)) for raw, name in names.items()}
    texts = {raw: column.key().cast(pl.String) for raw, column in columns.items() if column.dtype in _TEXTS}
    if not texts:
        return columns
    values = [pl.col(raw).cast(pl.String) for raw in texts]
    as_ids = [text.alias(f"{raw} as id") for raw, text in texts.items()]
    sample = rows.head(_SAMPLE).collect(lambda frame: frame.select(*values, *as_ids))
    for raw in texts:
        is_scientific = bool(sample[raw].str.strip_chars().str.contains(SCIENTIFIC).any())
        is_changed = bool((sample[raw] != sample[f"{raw} as id"]).any())
        columns[raw] = replace(columns[raw], is_scientific=is_scientific, is_changed=is_changed)
    numbers = {raw: text.str.contains(_NUMBER).all() for raw, text in texts.items()}
    strings = {raw: pl.col(raw).cast(pl.String).str for raw in texts}
    floats = {
        raw: (text.ends_with(".0") | text.contains("e+", literal=True)).any() for raw, text in strings.items()
    }
    powers = {raw: text.contains_any(["e", "E"]).any() for raw, text in strings.items()}
    # Nearly always the first rows show that texts are no numbers, else mostly a pass without patterns does.
    for some, conditions, merged in (
        (rows.head(_SAMPLE), numbers, pl.Expr.all),
        (rows, floats, pl.Expr.any),
        (rows, numbers, pl.Expr.all),
    ):
        if texts:
            flags = _flags(some, {raw: conditions[raw] for raw in texts}, powers, merged)
            for raw in texts:
                is_scientific = columns[raw].is_scientific or flags[f"{raw} power"]
                columns[raw] = replace(columns[raw], is_scientific=is_scientific)
            texts = {raw: text for raw, text in texts.items() if flags[raw]}
    return {raw: replace(column, is_float=raw in texts) for raw, column in columns.items()}


def _flags(
    rows: Rows,
    conditions: Mapping[str, pl.Expr],
    powers: Mapping[str, pl.Expr],
    merged: Callable[[pl.Expr], pl.Expr],
) -> dict[str, bool]:
    """Return by column whether its condition holds, and whether a value has an exponent (its `powers`).

    `merged` joins the results of a condition on pieces.
    """
    checks = [condition.alias(raw) for raw, condition in conditions.items()]
    checks += [powers[raw].alias(f"{raw} power") for raw in conditions]
    flags = rows.collect(lambda frame: frame.select(checks))
    whole = [merged(pl.col(raw)) for raw in conditions]
    return flags.select(*whole, *(pl.col(f"{raw} power").any() for raw in conditions)).row(0, named=True)


def changed_note(columns: Sequence[IdColumn]) -> str:
    """Return a sentence on columns whose ids are changed on reading."""
    names = dict.fromkeys(repr(column.name) for column in columns)
    return (
        f"ids of {' and '.join(names)} have blanks or marks without width "
        "around them, or letters in two Unicode forms: they are read without these and in one form (NFC), as "
        "the service reads those of requests"
    )


def _plain(texts: pl.Series) -> pl.Series:
    """Return ids in the form that `data.vocabulary.plain_id` gives them."""
    # Most columns are ASCII, and the check costs a twentieth of the normal form.
    if (texts.str.len_bytes() != texts.str.len_chars()).any():
        # Files that were put together have byte order marks inside.
        return texts.str.normalize(NORMAL_FORM).str.strip_chars(BLANKS)
    return texts.str.strip_chars()


def _is_inexact(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Tell whether floats are too large to tell neighbours apart; texts are read as 64-bit floats."""
    bound = _INEXACT_FROM.get(dtype, 2**53)
    number = value if dtype.is_float() else value.cast(pl.String).str.strip_chars()
    return number.cast(pl.Float64, strict=False).abs().is_between(bound, float("inf"), closed="left")


def as_keys(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Parse id texts as `dtype` keys; texts that do not parse are dropped."""
    if dtype == pl.String:
        return texts
    keys = texts.cast(pl.Int64, strict=False)
    return keys.filter(keys.cast(pl.String) == texts)


def vocabulary(keys: pl.Series, is_numeric: bool) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Build the sorted vocabulary of unique keys [N], and return the row of each: int32 [N].

    Texts that are numbers in the source, or may be (`is_numeric`), become integers if all of them print like
    an integer ("007" does not) and fit 64 bits with a sign, as the numbers in requests do.
    """
    if keys.dtype == pl.String and is_numeric:
        integers = as_keys(keys, pl.Int64())
        keys = integers if len(integers) == len(keys) else keys
    # UTF-8 bytes sort in the order of the code points.
    order = keys.arg_sort()
    rows = np.empty(len(keys), dtype=np.int32)
    rows[order.to_numpy()] = np.arange(len(keys), dtype=np.int32)
    return Vocabulary(keys.gather(order).to_list()), rows
