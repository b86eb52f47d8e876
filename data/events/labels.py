"""Division of a log's rows into events and negatives, the items not chosen, by kinds, labels and columns."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from turret.data.errors import ColumnError, brief
from turret.data.kinds import KindTable
from turret.data.manifest import Columns
from turret.data.progress import counted
from turret.data.reading.schema import nulls_of
from turret.data.reading.tables import Table, readable
from turret.data.rows import LOCAL, Engine

KIND, KIND_FILTER = "__kind", "kinds"
LABEL = "label"
_EVENT_ITEM = "__event_item"  # the item of the event that a row of `negatives` belongs to
_SHOWN = 10


def one_row_an_item(
    raw: pl.LazyFrame, columns: Columns, nulls: Sequence[str], list_separator: str
) -> pl.LazyFrame:
    """Add a row with LABEL 0 for each given negative before the row of its event, which gets LABEL 1.

    Texts of `nulls` are no negatives. Raises ColumnError for a type that can't be ids of the items' type.
    """
    schema = raw.collect_schema()
    items = _lists(schema["raw_negatives"], schema["raw_item"], columns, nulls, list_separator)
    labels = items.list.eval(pl.element().is_null().cast(pl.Int8) * pl.lit(0, pl.Int8))
    return raw.with_columns(
        pl.col("raw_item").alias(_EVENT_ITEM),
        pl.concat_list(items, "raw_item").alias("raw_item"),
        pl.concat_list(labels, pl.lit(1, pl.Int8)).alias(LABEL),
    ).explode("raw_item", LABEL)


def _lists(
    dtype: pl.DataType, item: pl.DataType, columns: Columns, nulls: Sequence[str], list_separator: str
) -> pl.Expr:
    """Return the column of negatives as lists of the items' type, empty for null."""
    value, inner = pl.col("raw_negatives"), dtype
    if isinstance(dtype, pl.List):
        inner = dtype.inner  # type: ignore[assignment]
    elif dtype == pl.String:
        value = value.str.split(list_separator).list.eval(pl.element().str.strip_chars())
        value = value.list.eval(pl.element().filter(~pl.element().is_in(["", *nulls])))
    else:
        value = pl.concat_list(value).list.drop_nulls()
    if not (inner == pl.Null or inner == pl.String or (inner.is_numeric() and item.is_numeric())):
        raise ColumnError(
            f"column {columns.negatives!r} holds {brief(dtype)}, and the items of column "
            f"{columns.item!r} are "
            f"{item}; give an item id or a list of item ids of that type"
        )
    return value.cast(pl.List(item), strict=False).fill_null([])


def label_value(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return the label of a row as Int8, null where it is none of 1, 0 and -1; the column is called `name`.

    Raises ColumnError for a column of another type than numbers, texts and booleans.
    """
    value = pl.col("raw_label")
    if dtype == pl.String:
        value = value.str.strip_chars().str.to_lowercase().replace({"true": "1", "false": "0"})
    elif not (dtype.is_numeric() or dtype == pl.Boolean):
        raise ColumnError(f"column {name!r} holds {brief(dtype)}, but labels are 0 and 1, or -1 and 1")
    value = value.cast(pl.Float64, strict=False)
    return pl.when(value.is_in([-1.0, 0.0, 1.0])).then(value).cast(pl.Int8)


def bad_label(columns: Columns) -> tuple[pl.Expr, str]:
    """Return the condition of bad rows of a log with labels or negatives, and its verdict."""
    if columns.label is not None:
        return pl.col(LABEL).is_null(), "label other than 0 and 1, or -1 and 1"
    is_event = pl.col(LABEL) == 1
    return ~is_event & (pl.col("raw_item") == pl.col(_EVENT_ITEM)), "negative equal to its positive"


def check_labels(counts: Counter[int], columns: Columns) -> None:
    """Raise ColumnError unless there are events and negatives, and labels are of one form.

    `counts` are the rows by label, without bad rows.
    """
    name = columns.negatives if columns.label is None else columns.label
    if counts[0] and counts[-1]:
        raise ColumnError(
            f"column {name!r} has labels of 0 ({counted(counts[0], 'row')}) and of -1 "
            f"({counted(counts[-1], 'row')}); mark the items that were not chosen by one of the two"
        )
    if columns.label is None and not counts[0]:
        raise ColumnError(f"column {name!r} has no item in any row; give the negatives, or leave it out")
    if not counts[1] or not counts[0] + counts[-1]:
        only = ", ".join(f"{label}" for label in counts) or "none"
        raise ColumnError(
            f"column {name!r} has one label only ({only}); give rows of both, 1 for events and 0 or -1 for "
            "items that were not chosen, or leave --label out if all rows are events"
        )


def kind_name(columns: Columns, default: str | None, nulls: Sequence[str]) -> pl.Expr:
    """Return the kind of a row, or null for a blank text and for texts of `nulls` (see `nulls_of`).

    Raises ColumnError for a log without a column of kinds.
    """
    if columns.kind is None:
        raise ColumnError("kinds need a column of kinds; name it with --kind-column")
    text = pl.col("raw_kind").cast(pl.String).str.strip_chars()
    kind = pl.when(text.is_in(nulls_of(nulls, columns.kind)).not_()).then(text)
    return pl.coalesce(kind, pl.lit(default, pl.String))


def refuse_absent_kinds(
    parts: Sequence[tuple[int | None, Table]],
    columns: Columns,
    kinds: KindTable,
    default: str | None,
    engine: Engine = LOCAL,
) -> None:
    """Raise ColumnError for a kind of the table that no row has: a misspelt kind would remove events."""
    absent, frequencies = {*kinds} - {default}, Counter[str]()
    if columns.kind is None or not absent:
        return
    kind = pl.col(columns.kind).cast(pl.String).str.strip_chars().alias("kind")
    for _, table in parts:
        with readable(table.path):
            counts = table.rows(engine).collect(
                lambda frame: frame.select(kind).drop_nulls().group_by("kind").len()
            )
        frequencies.update(Counter(dict(counts.group_by("kind").sum().iter_rows())))
    absent -= frequencies.keys()
    if not absent:
        return
    frequent = sorted(frequencies, key=lambda kind: (-frequencies[kind], kind))
    listed = ", ".join(map(repr, frequent[:_SHOWN])) or "none"
    rest = f" and {len(frequencies) - _SHOWN:,} others" if len(frequencies) > _SHOWN else ""
    raise ColumnError(
        f"no row has the kind {' or '.join(map(repr, sorted(absent)))}: the kinds in column {columns.kind!r} "
        f"are {listed}{rest}; correct --kind or the table of kinds"
    )
