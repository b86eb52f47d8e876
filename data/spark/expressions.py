"""Texts, numbers and ids as Spark columns, with the rules of `data.events.ids` and of polars' casts."""

from collections.abc import Sequence

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from turret.data.events.ids import integers_of

TEXTS = (pl.String, pl.Categorical, pl.Enum)
# White space of Unicode, as Polars has it.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# Spark's own cast takes more, such as "1d".
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def stripped(text: Column) -> Column:
    """Remove Unicode white space from both ends."""
    return F.btrim(text, F.lit(_SPACE))


def integer(text: Column) -> Column:
    """Parse a text as a long; null for any other text."""
    return text.try_cast("long")


def number(text: Column, dtype: str) -> Column:
    """Parse a text as a finite `double` or `float`; null for any other text."""
    value = text.try_cast(dtype)
    return F.when(text.rlike(_NUMBER) & _is_finite(value), value)


def whole(value: Column) -> Column:
    """Cast a number to a long; null for one that does not fit (Spark takes 2**63 for the largest)."""
    return F.when(value < float(2**63), value.try_cast("long"))


def finite(value: Column) -> Column:
    """Return a number, null for NaN and the infinities."""
    return F.when(_is_finite(value), value)


def _is_finite(value: Column) -> Column:
    return ~F.isnan(value) & ~value.isin(float("inf"), float("-inf"))


def is_readable_id(dtype: pl.DataType) -> bool:
    """Tell whether `id_key` reads ids of this type as Polars does."""
    return is_short_integer(dtype) or dtype in TEXTS


def is_short_integer(dtype: pl.DataType) -> bool:
    """Tell whether every value fits a long."""
    return dtype.is_integer() and dtype not in (pl.UInt64, pl.Int128, pl.UInt128)


def id_key(raw: Column, dtype: pl.DataType, nulls: Sequence[str]) -> Column:
    """Return ids as keys: long for integers, else texts (see `data.events.ids.id_key`)."""
    if dtype.is_integer():
        value = raw.cast("long")
        return F.when(~value.isin(integers_of(nulls)), value)
    return F.when(~stripped(raw).isin("", *nulls), raw)
