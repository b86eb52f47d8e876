"""Texts of numbers, as shops write them."""

import polars as pl

from turret.data.features.texts import SIGNS, number_form

# Spreadsheets write long numbers with fewer digits than the numbers have: 8.71112E+12. Other programs write a
# small e, or no plus; R writes 100000 as 1e+05, though.
SCIENTIFIC = r"^[+-]?\d(?:[.,]\d+[eE]\+?|E\+|e\+[1-9])\d+$"


def digits_behind(texts: pl.Expr) -> pl.Expr:
    """Return the number of digits behind the point of numbers with an exponent."""
    return texts.str.extract(r"[.,](\d+)[eE]", 1).str.len_chars().fill_null(0)


def is_rounded(texts: pl.Expr) -> pl.Expr:
    """Tell whether numbers have fewer digits than their exponent says: 8.71112E+12."""
    exponent = texts.str.extract(r"[eE]\+?(\d+)$", 1).cast(pl.Int64, strict=False)
    return (texts.str.contains(SCIENTIFIC) & (digits_behind(texts) < exponent)).fill_null(False)


def numbers(texts: pl.Series, decimal: str = ".") -> pl.Series:
    """Parse texts as float64, null where they are no numbers.

    `decimal` is the decimal mark, "." or ","; the other mark groups thousands. Signs of currency and percent
    are left out.
    """
    plain = texts.cast(pl.Float64, strict=False)
    if decimal == "." and plain.null_count() == texts.null_count():
        return plain
    thousands = "." if decimal == "," else ","
    bare = texts.str.replace_all(SIGNS, "")
    text = bare.str.replace_all(thousands, "", literal=True).str.replace(decimal, ".", literal=True)
    value = text.cast(pl.Float64, strict=False)
    is_number = bare.str.contains(rf"^{number_form(decimal)}$") & value.is_finite()
    return pl.select(pl.when(is_number).then(value)).to_series().alias(texts.name)


def number_in(text: pl.Expr, decimal: str) -> pl.Expr:
    """Parse the number in a text as `numbers` does; with a decimal comma also a number with a point, as 1.5.

    The comma may be the decimal mark of another file alone.
    """
    number = text.map_batches(
        lambda texts: numbers(texts, decimal), return_dtype=pl.Float64, is_elementwise=True
    )
    return pl.coalesce(number, text.str.strip_chars().cast(pl.Float64, strict=False))
