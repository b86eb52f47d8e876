"""Outside ids of any column type as text, and back."""

import polars as pl

from data.errors import ColumnError
from data.vocabulary import Id, Vocabulary, is_canonical_integer

_LEAST, _MOST = -(2**63), 2**63 - 1


def id_text(column: str, dtype: pl.DataType, name: str | None = None) -> pl.Expr:
    """Return `column` as text: (whole) numbers as integers print, null for an empty or a fractional one.

    Whole floats are what pandas makes of integers beside nulls, and whole decimals what databases export.
    Raises ColumnError for types that identify
    nothing.
    """
    value = pl.col(column)
    if dtype.is_integer():
        return value.cast(pl.String)
    if dtype.is_decimal():
        digits = value.cast(pl.String).str.replace(r"\.0+$", "")
        return pl.when(~digits.str.contains(".", literal=True)).then(digits)
    if dtype.is_float():
        return pl.when(value == value.floor()).then(value.cast(pl.Int64, strict=False)).cast(pl.String)
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        text = value.cast(pl.String)
        return pl.when(text != "").then(text)
    raise ColumnError(f"column {name or column!r} holds {dtype}, but ids have to be integers or text")


def vocabulary(texts: pl.Series, dtype: pl.DataType, is_text: bool) -> tuple[Vocabulary, list[str]]:
    """Build the vocabulary of unique ids, sorted, and give their texts in row order.

    `dtype` is the type that the ids had. Texts of a file that knows no types (`is_text`) are integers if
    every one of them prints like one ("007" does not), because that is what went in. Ids are texts where an
    integer among them does not fit 64 bits with a sign: requests have no such number.
    """
    texts_found: list[str] = texts.to_list()
    is_integer = dtype.is_numeric() or (is_text and all(map(is_canonical_integer, texts_found)))
    is_integer = is_integer and all(_LEAST <= int(text) <= _MOST for text in texts_found)
    ordered = sorted(texts_found, key=int) if is_integer else sorted(texts_found)
    ids: list[Id] = [int(text) for text in ordered] if is_integer else list(ordered)
    return Vocabulary(ids), ordered  # type: ignore[arg-type]
