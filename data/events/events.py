"""Validation of the rows of a log: each is an event, a bad row, or removed by a filter."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray

from turret.data.answers.places import with_places
from turret.data.errors import ColumnError, brief
from turret.data.events.contexts import context_key, raw_names
from turret.data.events.dropped_rows import (
    NO_KIND,
    ROUNDED,
    UNKNOWN_ITEM,
    UNREADABLE_QUANTITY,
    UNREADABLE_TIME,
    UNREADABLE_WEIGHT,
    WRONG_CLOCK,
)
from turret.data.events.event_arrays import EventFiles, Events
from turret.data.events.ids import IdColumn, IdInterner, as_keys, changed_note, id_columns
from turret.data.events.labels import (
    KIND,
    KIND_FILTER,
    LABEL,
    bad_label,
    kind_name,
    label_value,
    one_row_an_item,
    unknown_value,
)
from turret.data.events.log import COLUMNS, PART, VERDICT, WEIGHT_FILTER, Log, SourceRows
from turret.data.events.sessions import id_text, with_strangers
from turret.data.kinds import KindTable, negative_kinds, row_codes
from turret.data.manifest import Columns
from turret.data.reading.numbers import is_rounded, number_in
from turret.data.reading.schema import FilterSettings
from turret.data.reading.source_settings import SourceSettings, nulls_of
from turret.data.reading.tables import ROW, LogSource, Table, have_common_type, readable
from turret.data.reading.times import TimeReader, choose_reader
from turret.data.rows import LOCAL, Engine, Rows
from turret.data.vocabulary import ID_LENGTH

_IDS = {"raw_user": "user", "raw_item": "item"}


@dataclass(frozen=True)
class _RawSource:
    """The raw columns of a source, with the readers of its times and ids.

    `names` are the names of the raw columns in the source, and `numeric` is that of `SourceRows`.
    """

    source: LogSource
    rows: Rows
    time: TimeReader
    ids: dict[str, IdColumn]
    numeric: dict[str, bool]
    names: dict[str, str]


def validate(
    sources: Sequence[LogSource],
    kinds: KindTable,
    filters: FilterSettings,
    catalog: pl.Series | None = None,
    forms: Sequence[Sequence[str]] = (),
    engine: Engine = LOCAL,
) -> Log:
    """Validate the rows of all sources; `catalog` are the ids of the items file, as text.

    `forms` are formats of times that the first rows of each source do not show; `engine` reads the rows.

    Raises ColumnError when columns differ in type between parts, or don't fit their role, and when the times
    of two sources are of different kinds.
    """
    further = forms or [()] * len(sources)
    raw = [_raw_source(source, of_source, engine) for source, of_source in zip(sources, further, strict=True)]
    raw, notes = raw if len(raw) == 1 else _with_one_order(raw), tuple[str, ...]()
    if any(source.source.columns.session is not None for source in raw):
        raw, notes = _with_users(raw, filters.session_gap)
    validated = [_validated(source, kinds, filters, catalog) for source in raw]
    changed = [column for source in validated for column in source.ids.values() if column.is_changed]
    return Log(
        sources=tuple(validated),
        has_labels=LABEL in validated[0].rows.schema() or bool(kinds and negative_kinds(kinds)),
        kinds=kinds,
        notes=notes,
        doubts=(changed_note(changed),) if changed else (),
        numeric={role: all(source.numeric[role] for source in validated) for role in _IDS.values()},
    )


def _raw_source(source: LogSource, forms: Sequence[str], engine: Engine) -> _RawSource:
    """Read the raw columns of a source, and choose the readers of its times and ids."""
    columns, form = source.columns, source.settings.format
    names = {f"raw_{role}": name for role, name in columns if name is not None}
    names |= raw_names(source) if source.context else {}
    raw = _raw(source.parts, names, form.decimal, engine)
    with readable(source.path):
        time = TimeReader("position", pl.col(ROW), "the order of the rows")
        if columns.time is not None:
            time = choose_reader(raw, "raw_time", columns.time, source.settings.columns, forms)
        of_ids = {name: names[name] for name in (*_IDS, "raw_session") if name in names}
        ids = id_columns(raw, of_ids, form.nulls)
    is_text = all(table.is_text for _, table in source.parts)
    numeric = {role: is_text or ids[name].dtype.is_numeric() for name, role in _IDS.items()}
    return _RawSource(source, raw, time, ids, numeric, names)


def _with_one_order(sources: list[_RawSource]) -> list[_RawSource]:
    """Return the sources with times of one kind, that of those which have times.

    Raises ColumnError for times of two kinds, which have no common order.
    """
    if len({source.time.kind for source in sources}) == 1:
        return sources
    has_times = [not _is_without_times(source) for source in sources]
    timed = [source for source, is_timed in zip(sources, has_times, strict=True) if is_timed] or sources
    first = timed[0]
    for other in timed[1:]:
        if other.time.kind != first.time.kind:
            raise ColumnError(
                f"the times of the source {first.source.settings.name!r} are of the kind {first.time.kind!r} "
                f"({first.time.note}), those of {other.source.settings.name!r} of the kind "
                f"{other.time.kind!r} ({other.time.note}), and have no common order; name other columns with "
                "columns.time, or the unit with columns.time_unit"
            )
    none = TimeReader(
        first.time.kind,
        pl.lit(None, pl.Int64),
        "no row has a readable time",
        per_second=first.time.per_second,
    )
    return [
        source if is_timed else replace(source, time=none)
        for source, is_timed in zip(sources, has_times, strict=True)
    ]


def _is_without_times(source: _RawSource) -> bool:
    with readable(source.source.path):
        times = source.rows.first(1, lambda frame: frame.select(time=source.time.value).drop_nulls())
    return times.is_empty()


def _with_users(sources: list[_RawSource], gap: str | None) -> tuple[list[_RawSource], tuple[str, ...]]:
    """Return the sources with users for the rows of their sessions, and sentences about these."""
    with_sessions = [source for source in sources if source.source.columns.session is not None]
    named, note = with_strangers(
        [(source.rows, source.ids, source.time.value) for source in with_sessions], PART, gap
    )
    changed = dict(zip(map(id, with_sessions), named, strict=True))

    def with_users(source: _RawSource) -> _RawSource:
        if id(source) not in changed:
            return source
        user = replace(source.ids["raw_user"], dtype=pl.String(), is_float=False)
        return replace(source, rows=changed[id(source)], ids=source.ids | {"raw_user": user})

    return [with_users(source) for source in sources], (note,)


def _validated(
    raw: _RawSource, kinds: KindTable, filters: FilterSettings, catalog: pl.Series | None
) -> SourceRows:
    """Validate the rows of a source, in which sessions stand for missing users already."""
    columns, settings, ids, rows = raw.source.columns, raw.source.settings, raw.ids, raw.rows
    form = settings.format
    if columns.negatives is not None:
        nulls, list_separator = ids["raw_item"].nulls, form.list_separator or "|"
        rows = rows.then(lambda frame: one_row_an_item(frame, columns, nulls, list_separator))
        # Each negative is a row with an id now.
        ids = ids | id_columns(rows, {"raw_item": raw.names["raw_item"]}, form.nulls)
    quantity = None if columns.quantity is None else _quantity(columns.quantity, settings, rows.schema())
    kind = kind_name(columns, settings, filters.default_kind, quantity) if kinds else None
    values = _values(rows.schema(), columns, raw.time, kind, kinds, ids, form.decimal)
    if raw.source.context:
        values["context"] = context_key(raw.source.context, rows.schema())
    if quantity is not None:
        values["quantity"] = quantity
    rows = rows.then(lambda frame: frame.with_columns(**values))
    if raw.source.answers is not None:
        rows = with_places(rows, raw.source.answers)
    schema = rows.schema()
    if "weight" not in schema and filters.min_weight is not None:
        raise ColumnError("min_weight needs weights; name their column with --weight")
    verdicts = _verdicts(schema, columns, filters, raw.time, ids, form.nulls)
    if kind is not None:  # the kind decides before a row can be bad
        by_kind = [(kind.is_null(), NO_KIND), (pl.col(KIND).is_null(), KIND_FILTER)]
        verdicts = [*unknown_value(columns, settings), *by_kind, *verdicts]
    if catalog is not None:
        known = as_keys(catalog, schema["item"]).to_frame("item").with_columns(__known=True)
        rows = rows.then(lambda frame: frame.join(known.lazy(), on="item", how="left", maintain_order="left"))
        verdicts.append((pl.col("__known").is_null(), UNKNOWN_ITEM))
    verdict = pl.coalesce(*(pl.when(condition).then(pl.lit(name)) for condition, name in verdicts))
    return SourceRows(
        name=settings.name,
        rows=rows.then(lambda frame: frame.with_columns(verdict.alias(VERDICT))),
        time=raw.time,
        numeric=raw.numeric,
        ids=ids,
        tables=dict(raw.source.parts),
        names=raw.names,
    )


def _raw(
    parts: Sequence[tuple[int | None, Table]], names: dict[str, str], decimal: str, engine: Engine
) -> Rows:
    """Return the columns of all parts; times that are numbers, as days of a spreadsheet, have a point."""

    def picked(frame: pl.LazyFrame, part: int | None) -> pl.LazyFrame:
        row, number = pl.col(ROW).cast(pl.Int64), pl.lit(part, pl.Int8).alias(PART)
        return frame.select(row, number, *(pl.col(name).alias(raw) for raw, name in names.items()))

    frames = [picked(table.frame, part) for part, table in parts]
    schemas = [frame.collect_schema() for frame in frames]
    for raw, name in names.items() if len(parts) > 1 else ():
        if not have_common_type(*(schema[raw] for schema in schemas)):
            held = (
                f"{brief(schema[raw])} in {table.path}"
                for schema, (_, table) in zip(schemas, parts, strict=True)
            )
            raise ColumnError(
                f"column {name!r} differs in type between the parts: it holds {' and '.join(held)}; give all "
                "parts the same types"
            )
    rows = engine.rows(
        pl.concat(frames, how="vertical_relaxed"),
        lambda count: [picked(piece, part) for part, table in parts for piece in table.pieces(count)],
        parts[0][1].path,
    )
    if decimal != "." and rows.schema().get("raw_time") == pl.String:
        number = pl.col("raw_time").str.replace(r"^\s*(\d+),(\d+)\s*$", "$1.$2")
        rows = rows.then(lambda frame: frame.with_columns(number))
    # Some writers store missing floats as NaN.
    return rows.then(lambda frame: frame.with_columns(cs.float().fill_nan(None)))


def _values(
    schema: pl.Schema,
    columns: Columns,
    time: TimeReader,
    kind: pl.Expr | None,
    kinds: KindTable,
    ids: Mapping[str, IdColumn],
    decimal: str,
) -> dict[str, pl.Expr]:
    """Return the columns of events: ids as keys, times, and weights, labels and kinds, if any."""
    values = {"time": time.value} | {role: ids[raw].key() for raw, role in _IDS.items()}
    if "raw_session" in ids:
        values["session"] = id_text(ids["raw_session"])
    if columns.weight is not None:
        values["weight"] = _number("raw_weight", columns.weight, schema, decimal)
    if columns.label is not None:
        values[LABEL] = label_value(columns.label, schema["raw_label"])
    if kind is not None:
        values[KIND] = kind.replace_strict(row_codes(kinds), default=None, return_dtype=pl.Int8)
        weights = {name: kinds[name].weight for name in row_codes(kinds)}
        if any(weight != 1 for weight in weights.values()):
            weight = kind.replace_strict(weights, default=None, return_dtype=pl.Float32)
            values["weight"] = values["weight"] * weight if "weight" in values else weight
    return values


def _quantity(name: str, settings: SourceSettings, schema: pl.Schema) -> pl.Expr:
    """Return the quantity of a row, in the column `name`, with its sign."""
    quantity = _number("raw_quantity", name, schema, settings.format.decimal)
    return quantity if settings.quantity_sign == 1 else -quantity


def _number(raw: str, name: str, schema: pl.Schema, decimal: str) -> pl.Expr:
    """Parse a column as finite numbers, null where that fails."""
    dtype = schema[raw]
    if not dtype.is_numeric() and dtype != pl.String:
        raise ColumnError(f"column {name!r} holds {brief(dtype)} instead of numbers; name another column")
    value = number_in(pl.col(raw), decimal) if dtype == pl.String else pl.col(raw)
    value = value.cast(pl.Float32, strict=False)
    return pl.when(value.is_finite()).then(value)


def _verdicts(
    schema: pl.Schema,
    columns: Columns,
    filters: FilterSettings,
    time: TimeReader,
    ids: Mapping[str, IdColumn],
    nulls: Sequence[str],
) -> list[tuple[pl.Expr, str]]:
    """Return the conditions of bad rows with their verdicts; the first condition that holds decides."""
    verdicts = [verdict for raw, role in _IDS.items() for verdict in ids[raw].verdicts(role, role)]
    session = ids.get("raw_session")
    if session is not None and session.is_scientific:
        is_lost = is_rounded(pl.col("raw_session").cast(pl.String).str.strip_chars())
        verdicts.insert(0, (pl.col("user").is_null() & is_lost, f"session {ROUNDED}"))
    texts = [role for role in _IDS.values() if schema[role] == pl.String]
    if texts:
        is_long = pl.max_horizontal(pl.col(texts).str.len_chars()) > ID_LENGTH
        verdicts.append((is_long, f"id longer than {ID_LENGTH} characters"))
    if columns.time is not None:
        verdicts += [
            (pl.col("raw_time").is_null(), "null time"),
            (pl.col("time").is_null(), UNREADABLE_TIME),
        ]
    if time.likely is not None:
        verdicts.append((~pl.col("time").is_between(*time.likely), WRONG_CLOCK))
    if columns.weight is not None:
        verdicts.append((pl.col("raw_weight").is_null(), "null weight"))
    if "weight" in schema:
        verdicts.append((pl.col("weight").is_null(), UNREADABLE_WEIGHT))
        if filters.min_weight is not None:  # checked first, as a rating of -1, for none, is an invalid weight
            verdicts.append((pl.col("weight") < filters.min_weight, WEIGHT_FILTER))
        verdicts.append((pl.col("weight") <= 0, "weight not above 0"))
    if columns.quantity is not None:
        # A row without a quantity is no return: among several kinds, views have none. A kind may mark
        # returns.
        raw = pl.col("raw_quantity").cast(pl.String).str.strip_chars()
        is_unreadable = pl.col("quantity").is_null() & ~raw.is_in(nulls_of(nulls, columns.quantity))
        is_event = pl.col(KIND) >= 0 if KIND in schema else pl.lit(True)
        verdicts += [
            (is_unreadable, UNREADABLE_QUANTITY),
            (is_event & (pl.col("quantity") <= 0), "return (quantity not above 0)"),
        ]
    if columns.label is not None or columns.negatives is not None:
        verdicts.append(bad_label(columns))
    return verdicts


def events_of(rows: pl.DataFrame, users: NDArray[np.int32], items: NDArray[np.int32]) -> Events:
    """Return some of `Log.values`, all of them events, with the numbers of their users and items."""
    return Events(users, items, **{name: rows[name].to_numpy() for name in COLUMNS if name in rows})


def read_events(
    log: Log, work: Path
) -> tuple[EventFiles, pl.Series, pl.Series, pl.Series, Counter[str], Counter[int]]:
    """Read `log` in pieces, and write its events into the folder `work`, in the order of the source.

    Returns the events, the distinct ids (Int64 or String) of users and of items and the distinct contexts,
    which are numbered in the order of their discovery, the number of other rows by verdict, and the number of
    events by label. Raises SourceError when the source can't be read completely.
    """
    schema = log.values.schema()
    interners = [IdInterner(schema[role]) for role in ("user", "item")]
    contexts = IdInterner(pl.String())
    verdicts, labels = Counter[str](), Counter[int]()
    with EventFiles(work / "log", log.columns) as files, ThreadPoolExecutor(len(interners)) as pool:
        for rows in log.pieces():
            if rows[VERDICT].null_count() < rows.height:
                verdicts.update(dict(rows[VERDICT].drop_nulls().value_counts().iter_rows()))
                rows = rows.filter(pl.col(VERDICT).is_null())
            if LABEL in rows.columns:
                labels.update(dict(rows[LABEL].value_counts().iter_rows()))
            users, items = pool.map(IdInterner.numbers, interners, (rows["user"], rows["item"]))
            if "contexts" in rows.columns:
                rows = rows.with_columns(contexts=contexts.numbers(rows["contexts"]))
            files.write(events_of(rows, users, items))
    return files, interners[0].ids, interners[1].ids, contexts.ids, verdicts, labels
