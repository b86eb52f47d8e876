"""Kinds of the rows of a log: their codes, and names of the table of kinds that no row has."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from turret.data.errors import ColumnError
from turret.data.events.dropped_rows import NO_KIND
from turret.data.kinds import KindTable, row_codes
from turret.data.manifest import Columns
from turret.data.reading.schema import nulls_of
from turret.data.reading.tables import Table, readable

KIND, KIND_FILTER = "__kind", "kinds"
_SHOWN = 10


def kind_name(columns: Columns, default: str | None, nulls: Sequence[str]) -> pl.Expr:
    """The kind of a row, or null: a blank text and those of `nulls` are none.

    Raises ColumnError for a log without a column of kinds.
    """
    if columns.kind is None:
        raise ColumnError("kinds need a column of kinds; name it with --kind-column")
    text = pl.col("raw_kind").cast(pl.String).str.strip_chars()
    kind = pl.when(text.is_in(nulls_of(nulls, columns.kind)).not_()).then(text)
    return pl.coalesce(kind, pl.lit(default, pl.String))


def kind_code(name: pl.Expr, kinds: KindTable) -> pl.Expr:
    """The code of the kind of a row, Int8: null for a kind that is ignored."""
    return name.replace_strict(row_codes(kinds), default=None, return_dtype=pl.Int8)


def kind_weight(name: pl.Expr, kinds: KindTable) -> pl.Expr | None:
    """The weight of the kind of a row; None where all are 1."""
    weights = {kind: kinds[kind].weight for kind in row_codes(kinds)}
    if all(weight == 1 for weight in weights.values()):
        return None
    return name.replace_strict(weights, default=None, return_dtype=pl.Float32)


def kind_filters(name: pl.Expr) -> list[tuple[pl.Expr, str]]:
    """Return the conditions of rows without a kind, and of an ignored one, with their verdicts."""
    return [(name.is_null(), NO_KIND), (pl.col(KIND).is_null(), KIND_FILTER)]


def refuse_absent_kinds(
    parts: Sequence[tuple[int | None, Table]], columns: Columns, kinds: KindTable, default: str | None
) -> None:
    """Raise ColumnError for a kind of the table that no row has: a misspelt one would remove events."""
    absent, found = {*kinds} - {default}, Counter[str]()
    if columns.kind is None or not absent:
        return
    for _, table in parts:
        names = table.frame.select(pl.col(columns.kind).cast(pl.String).str.strip_chars().alias("kind"))
        with readable(table.path):
            counts = names.drop_nulls().group_by("kind").len().collect(engine="streaming")
        found.update(dict(counts.iter_rows()))
    absent -= found.keys()
    if not absent:
        return
    frequent = sorted(found, key=lambda kind: (-found[kind], kind))
    listed = ", ".join(map(repr, frequent[:_SHOWN])) or "none"
    rest = f" and {len(found) - _SHOWN:,} others" if len(found) > _SHOWN else ""
    raise ColumnError(
        f"no row has the kind {' or '.join(map(repr, sorted(absent)))}: the kinds in column {columns.kind!r} "
        f"are {listed}{rest}; correct --kind or the table of kinds"
    )
