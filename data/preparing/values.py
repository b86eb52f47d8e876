"""Texts of a column as the numbers, dates and lists that they stand for.

Shops write a price as "1.299,00 €", a list as "red, blue" or '["red"]', a truth value as "yes". Each function
returns the values and a sentence about its choice, which is empty where there was none to make.
"""

import ast
import json
import re
from collections.abc import Sequence
from typing import Literal

import polars as pl

from turret.data.errors import ColumnError
from turret.data.reading.schema import ColumnSettings
from turret.data.reading.times import choose_reader

DecimalMark = Literal["auto", ".", ","]

SEPARATORS = ("|", ";", ",", "/")
# The sample by which a column's kind is told.
_SAMPLE = 100_000
_CURRENCIES = r"[$€£¥₹]|\b(?:EUR|USD|GBP|CHF|SEK|NOK|DKK|PLN|JPY|CNY|INR|kr|zł|Fr\.)"
_SIGNS = rf"[\s\u00a0\u202f'\u2019%]|{_CURRENCIES}"
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_WORDS = (
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
    ("t", "f"),
    ("on", "off"),
    ("ja", "nein"),
    ("oui", "non"),
    ("si", "no"),
    ("sí", "no"),
)


def without_nulls(values: pl.Series, nulls: Sequence[str]) -> pl.Series:
    """Texts, stripped of spaces, and numbers, null where they are one of `nulls`; other types unchanged."""
    if values.dtype == pl.String:
        known = values.str.strip_chars()
        is_null = known.is_in(["", *nulls])
    elif values.dtype.is_numeric():
        known = values
        is_null = values.cast(pl.Float64).is_in([float(text) for text in nulls if _NUMBER.fullmatch(text)])
    else:
        return values
    return pl.select(pl.when(~is_null).then(known)).to_series().alias(values.name)


def numbers(texts: pl.Series, decimal: DecimalMark = "auto") -> tuple[pl.Series, str]:
    """Texts as float64, null where they are no numbers; signs of currency and percent are left out.

    `decimal` "auto" is the mark that stands last in numbers with both, a comma before one or two digits, or
    else the point.
    """
    plain = texts.cast(pl.Float64, strict=False)
    if decimal == "auto" and plain.null_count() == texts.null_count():
        return plain, ""
    bare = texts.str.replace_all(_SIGNS, "")
    mark = _decimal_mark(bare) if decimal == "auto" else decimal
    found = _parsed(bare, mark)
    if found.null_count() == len(found):
        return found, ""
    # The example in which the choice shows best.
    shown = next((text for text in texts.drop_nulls() if re.search(r"[^\d-]", text)), texts.drop_nulls()[0])
    other = "." if mark == "," else ","
    value = _parsed(pl.Series([shown]).str.replace_all(_SIGNS, ""), mark)[0]
    return found, (
        f"column {texts.name!r}: {shown!r} is read as the number {value}; --decimal {other!r} reads "
        f"{'a comma' if other == ',' else 'a point'} as the decimal mark"
    )


def currencies(texts: pl.Series) -> list[str]:
    """Return the distinct signs of currency in prices, sorted."""
    return sorted(texts.str.extract(f"({_CURRENCIES})").drop_nulls().unique())


def _decimal_mark(bare: pl.Series) -> Literal[".", ","]:
    def some(pattern: str) -> bool:
        return bool(bare.str.contains(pattern).any())

    if some(r"\..*,"):
        return ","
    if some(r",.*\."):
        return "."
    return "," if some(r",(?:\d{1,2}|\d{4,})$|^[+-]?0,|^[+-]?,") else "."


def _parsed(bare: pl.Series, mark: str) -> pl.Series:
    thousands = re.escape("." if mark == "," else ",")
    point = re.escape(mark)
    grouped = rf"^[+-]?\d{{1,3}}(?:{thousands}\d{{3}})+(?:{point}\d*)?$"
    simple = rf"^[+-]?(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?$"
    is_number = bare.str.contains(grouped) | bare.str.contains(simple)
    text = bare.str.replace_all("." if mark == "," else ",", "", literal=True).str.replace(
        mark, ".", literal=True
    )
    value = text.cast(pl.Float64, strict=False)
    return pl.select(pl.when(is_number & value.is_finite()).then(value)).to_series().alias(bare.name)


def truths(values: pl.Series) -> pl.Series:
    """Texts that are all true or false, in any case, as booleans; other columns unchanged."""
    if values.dtype != pl.String or not len(known := values.str.to_lowercase().drop_nulls()):
        return values
    is_truth = known.is_in(["true", "false"]).all()
    return (values.str.to_lowercase() == "true").alias(values.name) if is_truth else values


def truth_values(texts: pl.Series) -> pl.Series | None:
    """Texts of one pair of words for true and false, such as yes and no, as booleans; None for others."""
    folded = texts.str.to_lowercase()
    distinct = set(folded.drop_nulls().unique())
    pair = next((pair for pair in _WORDS if distinct == set(pair)), None)
    return None if pair is None else (folded == pair[0]).alias(texts.name)


def days(values: pl.Series) -> pl.Series | None:
    """Dates as days since 1970 (float64), or None for a column without dates.

    Texts are dates if all of a sample are, in one of the formats of event times.
    """
    values = values.rename("value")
    if values.dtype == pl.String:
        if not values.head(_SAMPLE).drop_nulls().str.contains(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}").all():
            return None
    elif not values.dtype.is_temporal() or values.dtype in (pl.Duration, pl.Time):
        return None
    try:
        reader = choose_reader(values.to_frame().lazy(), "value", "value", ColumnSettings())
    except ColumnError:
        return None
    if reader.kind != "timestamp":
        return None
    found = values.to_frame().select(reader.value / 86_400_000).to_series()
    return found if found.null_count() == values.null_count() else None


def list_separator(texts: pl.Series, usual: bool = False) -> str | None:
    """The separator of a column of lists, "json" for JSON lists, or None for a column of single values.

    Parts between separators are values of a list where they come back in other texts: each is in two on
    average, which parts of titles such as "Matrix, The" are not. Of a column with a `usual` name of lists,
    such as genre, one part that comes back is enough.
    """
    sample = texts.drop_nulls().head(_SAMPLE)
    if not len(sample):
        return None
    if (sample.str.starts_with("[") & sample.str.ends_with("]")).all():
        return "json"
    return next((separator for separator in SEPARATORS if _is_separator(sample, separator, usual)), None)


def _is_separator(sample: pl.Series, separator: str, usual: bool) -> bool:
    if sample.str.contains(separator, literal=True).mean() < 0.1:  # type: ignore[operator]
        return False
    parts = sample.unique().str.split(separator).explode().str.strip_chars()
    parts = parts.filter(parts != "")
    return len(parts) > parts.n_unique() if usual else len(parts) >= 2 * parts.n_unique()


def json_lists(texts: pl.Series) -> pl.Series:
    """Lists in JSON, or as Python prints them, as lists of texts; null where there is none."""
    lists = [None if text is None else _one_list(text) for text in texts]
    return pl.Series(texts.name, lists, dtype=pl.List(pl.String))


def _one_list(text: str) -> list[str] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        try:
            values = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    return [str(value) for value in values if value is not None] if isinstance(values, list) else None
