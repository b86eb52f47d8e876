"""Validation of the rows of a log: each is an event, a bad row, or removed by a filter."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import DTypeLike, NDArray

from turret.data.errors import ColumnError, brief
from turret.data.events.dropped_rows import (
    NO_KIND,
    ROUNDED,
    UNKNOWN_ITEM,
    UNREADABLE_QUANTITY,
    UNREADABLE_TIME,
    UNREADABLE_WEIGHT,
    WRONG_CLOCK,
)
from turret.data.events.event_arrays import PIECE, EventFiles, Events
from turret.data.events.ids import IdColumn, IdInterner, as_keys, changed_note, id_columns
from turret.data.events.labels import (
    KIND,
    KIND_FILTER,
    LABEL,
    bad_label,
    kind_name,
    label_value,
    one_row_an_item,
)
from turret.data.events.sessions import hashed, with_strangers
from turret.data.kinds import KindTable, negative_kinds, read_kinds, row_codes
from turret.data.manifest import BadRows, Columns, Removed
from turret.data.reading.numbers import is_rounded, number_in
from turret.data.reading.queries import ORDER
from turret.data.reading.schema import FilterSettings, PrepareConfig, nulls_of
from turret.data.reading.tables import EXAMPLES, ROW, Table, have_common_type, readable
from turret.data.reading.times import TimeReader, choose_reader, further_forms
from turret.data.rows import LOCAL, Engine, LocalRows, Rows
from turret.data.vocabulary import ID_LENGTH

PART, VERDICT = "__part", "__verdict"
WEIGHT_FILTER = "min_weight"
_FILTERS = (KIND_FILTER, NO_KIND, WEIGHT_FILTER)
_IDS = {"raw_user": "user", "raw_item": "item"}
_COLUMNS = ("times", "weights", "parts", "labels", "kinds", "sessions")


@dataclass(frozen=True)
class Log:
    """A validated log.

    `rows` has one row per source row: ROW, PART, `user` and `item` (ids as keys, see `data.events.ids`),
    `time`, `weight`, `session`, LABEL and KIND (if any), the raw columns as `raw_...`, and VERDICT: null for
    an event, else the reason why the row is no event. `kinds` is the table of kinds. `notes` are sentences
    for people, and so are `doubts`, which are about ids that are changed on reading. `numeric` tells by role
    whether ids are numbers in the source, or texts that may be numbers, as in CSV. `tables` has the table of
    each part, and `names` the source names of the raw columns.
    """

    rows: Rows
    time: TimeReader
    has_weights: bool
    has_labels: bool
    kinds: KindTable
    notes: tuple[str, ...]
    doubts: tuple[str, ...]
    numeric: dict[str, bool]
    tables: dict[int | None, Table]
    names: dict[str, str]

    @property
    def path(self) -> Path:
        """The file of the first part, for messages."""
        return next(iter(self.tables.values())).path

    @property
    def has_parts(self) -> bool:
        """Whether the source states the part of each event."""
        return None not in self.tables

    def columns(self) -> dict[str, DTypeLike]:
        """Return the types of this log's columns of `data.events.event_arrays.Events`."""
        rows = pl.DataFrame(schema=self.values().schema())
        users_and_items: dict[str, DTypeLike] = {"users": np.int32, "items": np.int32}
        return users_and_items | {name: rows[name].to_numpy().dtype for name in _COLUMNS if name in rows}

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Yield the `values` of rows of this process in batches."""
        values = self.values()
        assert isinstance(values, LocalRows)
        with readable(self.path):
            yield from values.frame.collect_batches(chunk_size=PIECE, engine="streaming")

    def values(self) -> Rows:
        """Return all rows in order: ids as keys, the other columns of `Events`, VERDICT, and LABEL if any."""
        label = pl.col(KIND) >= 0 if self.kinds else pl.lit(True)
        has_column = LABEL in self.rows.schema()
        columns = {"times": pl.col("time")}
        if self.has_weights:
            columns["weights"] = pl.col("weight")
        if self.has_parts:
            columns["parts"] = pl.col(PART)
        if self.has_labels:
            columns["labels"] = (label & (pl.col(LABEL) == 1) if has_column else label).cast(pl.Int8)
        if self.kinds:
            columns["kinds"] = pl.col(KIND)
        if "session" in self.rows.schema():
            columns["sessions"] = hashed(pl.col("session"))
        names = ["user", "item", VERDICT, *[LABEL] * has_column]
        return self.rows.then(lambda frame: frame.select(*names, **columns))

    def dropped_rows(self, counts: Mapping[str, int]) -> tuple[list[BadRows], list[Removed]]:
        """Return bad rows by kind, with examples, and removed rows by filter, from `counts` by verdict."""
        removed = [Removed(filter=name, events=counts[name]) for name in _FILTERS if name in counts]
        bad = [
            BadRows(kind=kind, count=counts[kind], examples=self._examples(kind))
            for kind in sorted(counts)
            if kind not in _FILTERS
        ]
        return bad, removed

    def further_forms(self) -> tuple[str, ...]:
        """Return the formats of the times that could not be read, as far as the formats are known."""
        if self.rows.schema()["raw_time"] != pl.String:
            return ()
        is_unread = pl.col(VERDICT) == UNREADABLE_TIME
        with readable(self.path):
            unread = self.rows.first(PIECE, lambda frame: frame.filter(is_unread).select("raw_time"))
        return further_forms(self.time, unread["raw_time"], self.names["raw_time"])

    def verdicts_by_kind(self) -> dict[str, Counter[str | None]]:
        """Count the rows of each target and signal by verdict, None for events, without filtered rows."""
        is_filtered = pl.col(VERDICT).is_in(_FILTERS).fill_null(False)
        names = read_kinds(self.kinds)
        verdicts = {name: Counter[str | None]() for name in names}
        with readable(self.path):
            counts = self.rows.collect(lambda frame: frame.filter(~is_filtered).group_by(KIND, VERDICT).len())
        for code, verdict, count in counts.iter_rows():
            if code is not None and code >= 0:
                verdicts[names[code]][verdict] += count
        return verdicts

    def bad_rows_of_kind(self, name: str, verdicts: Mapping[str | None, int]) -> list[BadRows]:
        """Return the bad rows of one kind of events as `dropped_rows` does for all kinds."""
        is_of_kind = pl.col(KIND) == row_codes(self.kinds)[name]
        return [
            BadRows(
                kind=f"rows of the kind {name}: {verdict}",
                count=count,
                examples=self._examples(verdict, is_of_kind),
            )
            for verdict, count in verdicts.items()
            if verdict is not None
        ]

    def _examples(self, verdict: str, condition: pl.Expr | bool = True) -> list[dict[str, Any]]:
        raw = [name for name in self.rows.schema().names() if name.startswith("raw_")]
        matches = (pl.col(VERDICT) == verdict) & condition
        with readable(self.path):
            rows = self.rows.first(EXAMPLES, lambda frame: frame.filter(matches).select(ROW, PART, *raw))
        if verdict == WRONG_CLOCK:
            day = self.time.value.cast(pl.Datetime("ms")).dt.date()
            rows = rows.with_columns(pl.format("{} ({})", "raw_time", day).alias("raw_time"))
        return [self._example(row) for row in rows.iter_rows(named=True)]

    def _example(self, row: dict[str, Any]) -> dict[str, Any]:
        part, number = row.pop(PART), row.pop(ROW)
        table = self.tables[part]
        named = {} if part is None else {"file": table.path.name}
        shown = {self.names[raw]: value for raw, value in row.items() if self.names[raw] != ORDER}
        values = {name: None if value is None else str(value) for name, value in shown.items()}
        return {**named, **table.place(number), **values}


def validate(
    parts: Sequence[tuple[int | None, Table]],
    columns: Columns,
    config: PrepareConfig,
    catalog: pl.Series | None = None,
    forms: Sequence[str] = (),
    engine: Engine = LOCAL,
) -> Log:
    """Validate the rows of all parts; `catalog` are the ids of the items file, as text.

    `forms` are formats of times that the first rows do not show; `engine` reads the rows.

    Raises ColumnError when columns differ in type between parts, or don't fit their role.
    """
    form, filters, kinds = config.format, config.filters, config.kinds
    names = {f"raw_{role}": name for role, name in columns if name is not None}
    raw = _raw(parts, names, form.decimal, engine)
    with readable(parts[0][1].path):
        time = TimeReader("position", pl.col(ROW), "the order of the rows")
        if columns.time is not None:
            time = choose_reader(raw, "raw_time", columns.time, config.columns, forms)
        of_ids = {name: names[name] for name in (*_IDS, "raw_session") if name in names}
        ids = id_columns(raw, of_ids, form.nulls)
    is_text, notes = all(table.is_text for _, table in parts), list[str]()
    numeric = {role: is_text or ids[name].dtype.is_numeric() for name, role in _IDS.items()}
    if columns.session is not None:
        raw, note = with_strangers(raw, PART, ids, time.value, filters.session_gap)
        ids["raw_user"] = replace(ids["raw_user"], dtype=pl.String(), is_float=False)
        notes.append(note)
    if columns.negatives is not None:
        nulls, list_separator = ids["raw_item"].nulls, form.list_separator or "|"
        raw = raw.then(lambda frame: one_row_an_item(frame, columns, nulls, list_separator))
        # Each negative is a row with an id now.
        ids |= id_columns(raw, {"raw_item": names["raw_item"]}, form.nulls)
    kind = kind_name(columns, filters.default_kind, form.nulls) if kinds else None
    values = _values(raw.schema(), columns, time, kind, kinds, ids, form.decimal)
    rows = raw.then(lambda frame: frame.with_columns(**values))
    schema = rows.schema()
    if "weight" not in schema and filters.min_weight is not None:
        raise ColumnError("min_weight needs weights; name their column with --weight")
    verdicts = _verdicts(schema, columns, filters, time, ids, form.nulls)
    if kind is not None:  # the kind decides before a row can be bad
        verdicts = [(kind.is_null(), NO_KIND), (pl.col(KIND).is_null(), KIND_FILTER), *verdicts]
    if catalog is not None:
        known = as_keys(catalog, schema["item"]).to_frame("item").with_columns(__known=True)
        rows = rows.then(lambda frame: frame.join(known.lazy(), on="item", how="left", maintain_order="left"))
        verdicts.append((pl.col("__known").is_null(), UNKNOWN_ITEM))
    changed = [column for column in ids.values() if column.is_changed]
    verdict = pl.coalesce(*(pl.when(condition).then(pl.lit(name)) for condition, name in verdicts))
    return Log(
        rows=rows.then(lambda frame: frame.with_columns(verdict.alias(VERDICT))),
        time=time,
        has_weights="weight" in schema,
        has_labels=LABEL in schema or bool(kinds and negative_kinds(kinds)),
        kinds=kinds,
        notes=tuple(notes),
        doubts=(changed_note(changed),) if changed else (),
        numeric=numeric,
        tables=dict(parts),
        names=names,
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
    """Return the columns of events: ids as keys, times, and weights, quantities, labels and kinds, if any."""
    values = {"time": time.value} | {role: ids[raw].key() for raw, role in _IDS.items()}
    if "raw_session" in ids:
        values["session"] = ids["raw_session"].text()
    for role in ("weight", "quantity"):
        if (name := getattr(columns, role)) is not None:
            values[role] = _number(f"raw_{role}", name, schema, decimal)
    if columns.label is not None:
        values[LABEL] = label_value(columns.label, schema["raw_label"])
    if kind is not None:
        values[KIND] = kind.replace_strict(row_codes(kinds), default=None, return_dtype=pl.Int8)
        weights = {name: kinds[name].weight for name in row_codes(kinds)}
        if any(weight != 1 for weight in weights.values()):
            weight = kind.replace_strict(weights, default=None, return_dtype=pl.Float32)
            values["weight"] = values["weight"] * weight if "weight" in values else weight
    return values


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
    return Events(users, items, **{name: rows[name].to_numpy() for name in _COLUMNS if name in rows})


def read_events(log: Log, work: Path) -> tuple[EventFiles, pl.Series, pl.Series, Counter[str], Counter[int]]:
    """Read `log` in pieces, and write its events into the folder `work`, in the order of the source.

    Returns the events, the distinct ids (Int64 or String) of users and of items, which are numbered in the
    order of their discovery, the number of other rows by verdict, and the number of events by label. Raises
    SourceError when the source can't be read completely.
    """
    schema = log.rows.schema()
    interners = [IdInterner(schema[role]) for role in ("user", "item")]
    verdicts, labels = Counter[str](), Counter[int]()
    with EventFiles(work / "log", log.columns()) as files, ThreadPoolExecutor(len(interners)) as pool:
        for rows in log.pieces():
            if rows[VERDICT].null_count() < rows.height:
                verdicts.update(dict(rows[VERDICT].drop_nulls().value_counts().iter_rows()))
                rows = rows.filter(pl.col(VERDICT).is_null())
            if LABEL in rows.columns:
                labels.update(dict(rows[LABEL].value_counts().iter_rows()))
            users, items = pool.map(IdInterner.numbers, interners, (rows["user"], rows["item"]))
            files.write(events_of(rows, users, items))
    return files, interners[0].ids, interners[1].ids, verdicts, labels
