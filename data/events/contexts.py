"""The contexts of events, each as one text, so that equal contexts are kept once."""

from collections.abc import Sequence

import polars as pl

from turret.data.reading.tables import LogSource

NO_CONTEXT = ""
"""The context without a value."""


def raw_names(source: LogSource) -> dict[str, str]:
    """Return the columns of contexts that all tables of a source have, by their raw names."""
    tables = [table.columns for _, table in source.parts]
    return {
        _raw(place): name
        for place, name in enumerate(source.context)
        if all(name in columns for columns in tables)
    }


def context_key(context: Sequence[str], schema: pl.Schema) -> pl.Expr:
    """Return a row's values of the columns `context` as a JSON object, NO_CONTEXT where all are null.

    `schema` is that of the raw columns; a source without a column has nulls there.
    """
    values = [
        (pl.col(_raw(place)) if _raw(place) in schema else pl.lit(None, pl.String)).alias(name)
        for place, name in enumerate(context)
    ]
    is_known = pl.any_horizontal([value.is_not_null() for value in values])
    return pl.when(is_known).then(pl.struct(values).struct.json_encode()).otherwise(pl.lit(NO_CONTEXT))


def _raw(place: int) -> str:
    return f"raw_context_{place}"
