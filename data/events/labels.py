"""Division of a log's rows into events and negatives, the items not chosen, by kinds, labels and columns."""

from collections import Counter
from collections.abc import Sequence

import polars as pl

from turret.data.errors import ColumnError, brief
from turret.data.events.dropped_rows import UNKNOWN_VALUE
from turret.data.kinds import KindTable
from turret.data.manifest import Columns
from turret.data.progress import counted
from turret.data.reading.source_settings import SourceSettings, nulls_of
from turret.data.reading.tables import LogSource, readable
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


def kind_name(
    columns: Columns, settings: SourceSettings, default: str | None, quantity: pl.Expr | None = None
) -> pl.Expr:
    """Return the kind of a row, or null for a row without a kind and for an unknown value of the column.

    `quantity` is that of the row. Raises ColumnError for a source without a column of kinds whose rows have
    no constant kind.
    """
    if settings.kind is not None:
        kind = pl.lit(settings.kind)
    else:
        text = _kind_text(columns, settings)
        kind = (
            text.replace_strict(settings.kinds, default=None, return_dtype=pl.String)
            if settings.kinds
            else text
        )
        kind = pl.when(text.is_null()).then(pl.lit(default, pl.String)).otherwise(kind)
    if settings.return_kind is not None and quantity is not None:
        kind = pl.when(quantity < 0).then(pl.lit(settings.return_kind)).otherwise(kind)
    return kind


def unknown_value(columns: Columns, settings: SourceSettings) -> list[tuple[pl.Expr, str]]:
    """Return the condition of rows whose value has no kind in the source's table, and its verdict."""
    if not settings.kinds:
        return []
    text = _kind_text(columns, settings)
    return [(text.is_not_null() & ~text.is_in([*settings.kinds]), UNKNOWN_VALUE)]


def _kind_text(columns: Columns, settings: SourceSettings) -> pl.Expr:
    """Return the text in the column of kinds, null for a blank text and for texts of `nulls_of`."""
    if columns.kind is None:
        raise ColumnError(
            f"the source {settings.name!r} has no column of kinds; name it with columns.kind, or give kind, "
            "that of all its rows"
            if settings.name
            else "kinds need a column of kinds; name it with --kind-column"
        )
    text = pl.col("raw_kind").cast(pl.String).str.strip_chars()
    return pl.when(text.is_in(nulls_of(settings.format.nulls, columns.kind)).not_()).then(text)


def refuse_absent_kinds(
    sources: Sequence[LogSource], kinds: KindTable, default: str | None, engine: Engine = LOCAL
) -> None:
    """Raise ColumnError for a kind of the table that no row has: a misspelt kind would remove events.

    Kinds that the settings of a source name are not looked for: no event is lost by one that has no rows.
    """
    absent = {*kinds} - {default}
    absent -= {kind for source in sources for kind in source.settings.named_kinds}
    sources = [source for source in sources if source.columns.kind is not None and not source.settings.kinds]
    if not sources or not absent:
        return
    frequencies = Counter[str]()
    for source in sources:
        frequencies.update(_values_of_kinds(source, engine))
    absent -= frequencies.keys()
    if not absent:
        return
    frequent = sorted(frequencies, key=lambda kind: (-frequencies[kind], kind))
    listed = ", ".join(map(repr, frequent[:_SHOWN])) or "none"
    rest = f" and {len(frequencies) - _SHOWN:,} others" if len(frequencies) > _SHOWN else ""
    column = " and ".join(dict.fromkeys(repr(source.columns.kind) for source in sources))
    raise ColumnError(
        f"no row has the kind {' or '.join(map(repr, sorted(absent)))}: the kinds in column {column} "
        f"are {listed}{rest}; correct --kind or the table of kinds"
    )


def _values_of_kinds(source: LogSource, engine: Engine) -> Counter[str]:
    """Count the rows of a source by the text in its column of kinds."""
    text = pl.col(source.columns.kind or "").cast(pl.String).str.strip_chars().alias("kind")
    frequencies = Counter[str]()
    for _, table in source.parts:
        with readable(table.path):
            counts = table.rows(engine).collect(
                lambda frame: frame.select(text).drop_nulls().group_by("kind").len()
            )
        frequencies.update(Counter(dict(counts.group_by("kind").sum().iter_rows())))
    return frequencies
