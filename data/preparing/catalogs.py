"""The items and users files: rows by vocabulary, features, and the fields for answers."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.configuration import NO_DISPLAY, DisplaySettings
from turret.data.errors import ColumnError, brief
from turret.data.events.dropped_rows import REPEATED_ID, CheckedRows
from turret.data.events.ids import as_keys, id_columns
from turret.data.features.columns import Features, VectorRows
from turret.data.features.feature import KINDS
from turret.data.features.texts import QUERY, grams, text_of
from turret.data.histories.histories import Histories
from turret.data.manifest import BadRows, FeatureSummary
from turret.data.prepared import ColdItems
from turret.data.preparing.encoding import element_type, encode, is_printable, truths
from turret.data.preparing.feature_readings import CHANGING, Readings, field_values, read_features
from turret.data.preparing.vectors import column_vectors, file_vectors, missing_note
from turret.data.progress import counted
from turret.data.reading.columns import USUAL, Role, choose, require
from turret.data.reading.markup import MARKS, plain_value
from turret.data.reading.schema import FeatureColumns, PrepareConfig
from turret.data.reading.source_settings import FormatSettings
from turret.data.reading.tables import EXAMPLES, OWN, ROW, Source, Table, readable
from turret.data.rows import LocalRows
from turret.data.vocabulary import STRANGER, Id, Vocabulary, is_canonical_integer

_ID = f"{OWN}id"
MOST_GRAMS = 100_000
"""The largest size of the vocabulary of queries; tables and the state of their optimiser grow with it."""


@dataclass(frozen=True)
class EntityTable:
    """The rows of an items or users file with unique ids (`ids`, as text), and its bad rows.

    `decoded` counts the texts that had markup.
    """

    frame: pl.DataFrame
    path: Path
    id_column: str
    is_text: bool
    bad_rows: list[BadRows]
    repeated_ids: int = 0
    decoded: int = 0

    @property
    def checked(self) -> CheckedRows:
        """The numbers of the valid and of the bad rows."""
        return CheckedRows([self.path], self.frame.height, self.bad_rows, doubtful=self.repeated_ids)

    @property
    def ids(self) -> pl.Series:
        """The unique ids, as text."""
        return self.frame[_ID]

    def aligned(self, ids: list[str]) -> pl.DataFrame:
        """Return the rows of `ids`, in that order; null for ids that are not in the file."""
        wanted = pl.DataFrame({_ID: ids}, schema={_ID: pl.String})
        rows = wanted.join(self.frame, on=_ID, how="left", maintain_order="left")
        return rows.drop(_ID, ROW, self.id_column)


def read_entity_table(
    table: Table,
    named: str | None,
    events_column: str,
    role: Role,
    settings: FormatSettings | None = None,
) -> EntityTable:
    """Read the items or users file (`role` "item" or "user").

    The id column is `named`, or has its name in the events, or has a common name. Raises ColumnError without
    an id column.
    """
    settings = settings or FormatSettings()
    usual = [events_column, *USUAL[role], "id"]
    id_column = choose(role, named, usual, table.columns, str(table.path), f"{role}-id")
    with readable(table.path):
        frame = table.frame.collect(engine="streaming")
    frame = frame.unique([name for name in frame.columns if name != ROW], keep="first", maintain_order=True)
    ids = id_columns(LocalRows(frame.lazy()), {id_column: id_column}, settings.nulls)[id_column]
    frame = frame.with_columns(ids.key().cast(pl.String).alias(_ID))
    is_repeated = pl.col(_ID).is_not_null() & ~pl.col(_ID).is_first_distinct()
    bad = [table.malformed.bad_rows(f"{role}s file: malformed line")] if table.malformed.count else []
    without_id = frame.filter(pl.col(_ID).is_null())
    for condition, verdict in ids.verdicts(_ID, "id"):
        bad += _rows(f"{role}s file: {verdict}", table, without_id.filter(condition), id_column)
        without_id = without_id.filter(~condition)
    bad += _rows(f"{role}s file: {REPEATED_ID}", table, frame.filter(is_repeated), id_column)
    rows, decoded = frame.filter(~is_repeated & pl.col(_ID).is_not_null()), 0
    if role == "item" and not settings.keep_html:
        rows, decoded = _without_markup(rows, (_ID, id_column))
    return EntityTable(
        rows,
        table.path,
        id_column,
        table.is_text,
        bad,
        frame.filter(is_repeated)[_ID].n_unique(),
        decoded,
    )


def _without_markup(frame: pl.DataFrame, ids: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Apply `plain_text` to all columns of texts except `ids`; also return the number of changed values."""
    decoded = 0
    for name, dtype in frame.schema.items():
        if name in ids or element_type(dtype) != pl.String:
            continue
        values = frame[name]
        texts = values.explode() if isinstance(dtype, pl.List) else values
        if texts.str.contains_any([*MARKS]).any():
            before = values.to_list()
            after = [*map(plain_value, before)]
            decoded += sum(old != new for old, new in zip(before, after, strict=True))
            frame = frame.with_columns(pl.Series(name, after, dtype=dtype))
    return frame, decoded


def fields(
    frame: pl.DataFrame,
    names: tuple[str, ...] | None,
    readings: Readings,
    entries: EntityTable,
    settings: FormatSettings,
) -> dict[str, list[Any]]:
    """Return the columns for answers as lists of JSON values; `frame` is aligned with the vocabulary.

    Lists and numbers among the features are returned as they were read. Texts of other columns are read as
    features of their values would be: as numbers, lists, true and false. Without `names`, the result has all
    columns of texts, numbers, booleans, dates and lists of them, except vectors. Raises ColumnError for a
    named column that does not exist or that JSON can't express.
    """
    columns: dict[str, list[Any]] = {}
    chosen = readings.chosen
    shown = [name for name in frame.columns if name not in chosen.vector]
    for name in shown if names is None else names:
        values = frame[require(name, frame.columns, str(entries.path), "answers")]
        if values.dtype == pl.String and name in (*chosen.multi, *chosen.number):
            values = readings.values[name]
        elif name not in readings.values and (entries.is_text or CHANGING.search(name)):
            values = field_values(values, settings)
        if is_printable(element_type(values.dtype)):
            columns[name] = _json_values(values, entries.is_text)
        elif names is not None:
            raise ColumnError(
                f"column {name!r} of {entries.path} holds {brief(values.dtype)}, which JSON can't "
                "express; leave it out of the fields"
            )
    return columns


def _rows(kind: str, table: Table, rows: pl.DataFrame, id_column: str) -> list[BadRows]:
    if rows.is_empty():
        return []
    examples = [
        {**table.place(row), id_column: None if value is None else str(value)}
        for row, value in rows.select(ROW, id_column).head(EXAMPLES).iter_rows()
    ]
    return [BadRows(kind=kind, count=rows.height, examples=examples)]


def _json_values(values: pl.Series, is_text: bool) -> list[Any]:
    values = pl.select(_json_expression(pl.lit(values), values.dtype)).to_series()
    # In an untyped file, columns of integers or whole floats alone become integers, and truths booleans.
    values = truths(values) if is_text else values
    is_integer = is_text and values.dtype == pl.String and all(map(is_canonical_integer, values.drop_nulls()))
    if is_integer or (values.dtype.is_float() and (values == values.floor()).all()):
        integers = values.cast(pl.Int64, strict=False)
        values = values if integers.null_count() > values.null_count() else integers
    return values.to_list()


def _json_expression(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return the JSON form of a value: dates and decimals as texts, null for non-finite numbers."""
    if isinstance(dtype, pl.List):
        return value.list.eval(_json_expression(pl.element(), element_type(dtype)))
    if dtype.is_temporal() or dtype.is_decimal():
        return value.cast(pl.String)
    return pl.when(value.is_finite()).then(value) if dtype.is_float() else value


@dataclass(frozen=True)
class _Rows:
    """The features and fields of the rows of a vocabulary, followed by those of the items without an event.

    `raw` has the values of each feature of `kinds` except `vectors`, as `Feature.encode_one` takes them.
    `cold` has the ids of the items without an event.
    """

    kinds: dict[str, str]
    raw: dict[str, list[Any]]
    vectors: dict[str, VectorRows]
    answers: dict[str, list[Any]]
    cold: list[Id]
    written: dict[str, str] = field(default_factory=dict)

    def save(
        self, folder: Path, name: str, ids: Vocabulary, shared: tuple[str, ...] | None
    ) -> list[FeatureSummary]:
        """Encode and write the rows of `ids`, and write the items without an event, into prepared data."""
        count = len(ids)
        raw_values = {feature: values[:count] for feature, values in self.raw.items()}
        vectors = {feature: rows.part(slice(count)) for feature, rows in self.vectors.items()}
        features = Features(count, (), {})
        if self.kinds or vectors:
            features = encode(raw_values, self.kinds, vectors, count, shared, self.written)
        features.save(folder / f"{name}_features")
        ids.save(folder / f"{name}s.json")
        if self.cold:
            raw, answers = (
                {column: values[count:] for column, values in columns.items()}
                for columns in (self.raw, self.answers)
            )
            vectors = {feature: rows.part(slice(count, None)) for feature, rows in self.vectors.items()}
            ColdItems(self.cold, raw, answers, {**vectors}).save(folder)
        return [FeatureSummary.model_validate(feature, from_attributes=True) for feature in features.features]


def write_catalogs(
    folder: Path,
    config: PrepareConfig,
    source: Source,
    items: EntityTable | None,
    users: EntityTable | None,
    histories: Histories,
    splits: NDArray[np.int64],
) -> tuple[list[FeatureSummary], list[FeatureSummary], list[str]]:
    """Encode and write vocabularies, features and fields.

    Returns summaries of the features of users and of items, and a sentence on each choice.
    """
    vocabulary, texts = None, list[str]()
    rows, notes = _Rows({}, {}, {}, {}, []), list[str]()
    if items is not None or config.item_features is not None:
        chosen = (config.item_features or FeatureColumns()).over(source.item_features or FeatureColumns())
        rows, notes = _read_rows(items, histories.items, chosen, "item", config.format, config.fields)
    if config.display != NO_DISPLAY:
        _check_display(config.display, rows.answers)
    if config.queries is not None:
        texts = [*map(text_of, histories.users.all_ids)]
        is_train = splits[:, 0] > histories.offsets[:-1]
        queries = [text for text, known in zip(texts, is_train, strict=True) if known]
        vocabulary = _shared_grams(rows, queries)
    of_items = rows.save(folder, "item", histories.items, vocabulary)
    answers = {name: values[: len(histories.items)] for name, values in rows.answers.items()}
    text = json.dumps({"fields": answers}, ensure_ascii=False, allow_nan=False)
    (folder / "catalogue.json").write_text(text, encoding="utf-8")
    rows, user_notes = _Rows({}, {}, {}, {}, []), list[str]()
    if users is not None or config.user_features is not None:
        chosen = (config.user_features or FeatureColumns()).over(source.user_features or FeatureColumns())
        rows, user_notes = _read_rows(users, histories.users, chosen, "user", config.format, ())
    if config.queries is not None:
        raw = {QUERY: texts} | rows.raw | {QUERY: texts}  # the query is the first feature
        rows = replace(rows, raw=raw, kinds={**rows.kinds, QUERY: "text"})
    of_users = rows.save(folder, "user", histories.users, vocabulary)
    return of_users, of_items, [*user_notes, *notes]


def _check_display(display: DisplaySettings, answers: Mapping[str, object]) -> None:
    options = {"--title": [display.title] if display.title else [], "--show": [*display.show]}
    for option, name in ((option, name) for option, names in options.items() for name in names):
        if name not in answers:
            known = f"they have {', '.join(answers)}" if answers else "they have none"
            raise ColumnError(f"{option} {name!r}: items have no such field for answers; {known}")


def _read_rows(
    entries: EntityTable | None,
    vocabulary: Vocabulary,
    chosen: FeatureColumns,
    role: Role,
    settings: FormatSettings,
    field_names: tuple[str, ...] | None,
) -> tuple[_Rows, list[str]]:
    """Read the rows of `vocabulary`, and those of the items without an event, with sentences on choices."""
    ids = [*map(str, vocabulary.all_ids)]
    rows, notes = _Rows({}, {}, {}, {}, []), list[str]()
    if entries is not None:
        if entries.id_column in {name for _, name in chosen.by_kind()}:
            raise ColumnError(
                f"column {entries.id_column!r} of {entries.path} holds the ids of the {role}s, which say "
                f"nothing about other {role}s, so it can't be a feature; leave it out"
            )
        notes += _absent_note(entries, ids, role)
        keys = as_keys(entries.ids, pl.Int64() if vocabulary.kind == "integer" else pl.String())
        cold = [key for key in keys.sort() if vocabulary.row(key) is None] if role == "item" else []
        ids += map(str, cold)
        frame = entries.aligned(ids)
        readings = read_features(frame, chosen, entries.path, role, settings)
        chosen = readings.chosen
        notes += readings.notes
        if entries.decoded:
            notes.append(
                f"{entries.path.name}: tags and entities of HTML, such as &amp;, were decoded in "
                f"{counted(entries.decoded, 'text')}; --keep-html leaves them"
            )
        kinds = {name: kind for kind, name in chosen.by_kind()}
        answers = fields(frame, field_names, readings, entries, settings)
        rows = _Rows(kinds, {}, {}, answers, cold, readings.written)
        for name, values in readings.values.items():
            if KINDS[kinds[name]].reading == "vectors":
                rows.vectors[name] = column_vectors(values, entries.path, ids)
            else:
                rows.raw[name] = values.to_list()
    for name, path in chosen.vector_files().items():
        rows.vectors[name] = file_vectors(path, ids, role)
    for name, vectors in rows.vectors.items():
        notes.append(missing_note(name, vectors.part(slice(len(vocabulary))), role))
    if entries is not None and rows.cold:
        notes.append(f"{entries.path.name}: {len(rows.cold):,} of {counted(len(ids), 'item')} have no event")
        if not rows.raw and not rows.vectors:
            notes[-1] += " and no features, so no model can rank them, and they are left out"
            return replace(rows, cold=[]), notes
        notes[-1] += "; a model whose item tower reads features recommends them, others leave them out"
    return rows, notes


def _absent_note(entries: EntityTable, ids: Sequence[str], role: Role) -> Iterator[str]:
    """A sentence on the items or users of the log that are not in their file, if there are some."""
    # Only users of a log can be missing in their file, and strangers always are.
    people = len(ids) - sum(user.startswith(STRANGER) for user in ids if role == "user")
    if (absent := people - int(entries.ids.is_in(ids).sum())) > 0:
        yield (
            f"{entries.path.name}: {absent:,} of {counted(people, role)} of the log are not in it, and "
            f"have no features; its ids are such as {', '.join(map(repr, entries.ids.head(EXAMPLES)))}"
        )


def _shared_grams(items: _Rows, queries: Sequence[str]) -> tuple[str, ...]:
    """Return one vocabulary for all texts, so that both towers can begin with the same vector for each gram.

    It has the trigrams and words of the items' texts and of the training `queries`, at most `MOST_GRAMS`: the
    grams that are in the most texts.
    """
    texts = [values for name, values in items.raw.items() if items.kinds[name] == "text"]
    counts = Counter(
        gram for text in chain(queries, *texts) if text is not None for gram in {*grams(text, words=True)}
    )
    return tuple(sorted(sorted(counts, key=lambda gram: (-counts[gram], gram))[:MOST_GRAMS]))
