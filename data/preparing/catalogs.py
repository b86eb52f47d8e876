"""The items and users files: rows by vocabulary, features, and the fields for answers."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from turret.data.errors import ColumnError
from turret.data.events.dropped_rows import REPEATED_ID, CheckedRows
from turret.data.events.ids import as_keys, float_texts, id_text, id_verdicts
from turret.data.features import QUERY, Bag, Column, Feature, Features, VectorRows, grams, text_of
from turret.data.histories.histories import Histories
from turret.data.manifest import BadRows
from turret.data.prepared import ColdItems
from turret.data.preparing.encoding import (
    element_type,
    encode,
    is_printable,
    plain_numbers,
    raw_features,
    truths,
)
from turret.data.preparing.feature_readings import CHANGING, read_features
from turret.data.preparing.vectors import column_vectors, file_vectors, missing_note, vector_feature
from turret.data.progress import counted
from turret.data.ranges import distinct
from turret.data.reading.columns import Role, choose_id, require
from turret.data.reading.schema import NULLS, FeatureColumns, FormatSettings, PrepareConfig, nulls_of
from turret.data.reading.tables import EXAMPLES, ROW, Source, Table, readable
from turret.data.vocabulary import STRANGER, Id, Vocabulary, is_canonical_integer

_ID = "__id"
MOST_GRAMS = 100_000
"""The size of the vocabulary of queries, by which tables and the state of their optimiser grow."""


@dataclass(frozen=True)
class EntityTable:
    """The rows of an items or users file with unique ids (`ids`, as text), and its bad rows."""

    frame: pl.DataFrame
    path: Path
    id_column: str
    is_text: bool
    bad_rows: list[BadRows]
    repeated_ids: int = 0

    @property
    def checked(self) -> CheckedRows:
        """The numbers of the valid rows and of the others."""
        return CheckedRows([self.path], self.frame.height, self.bad_rows, doubtful=self.repeated_ids)

    @property
    def ids(self) -> pl.Series:
        """The unique ids, as text."""
        return self.frame[_ID]

    def without_event(self, vocabulary: Vocabulary) -> list[Id]:
        """Return the ids that `vocabulary` lacks, sorted; only those of its kind."""
        keys = as_keys(self.ids, pl.Int64() if vocabulary.kind == "integer" else pl.String())
        return [key for key in keys.sort().to_list() if vocabulary.row(key) is None]

    def aligned(self, ids: list[str]) -> pl.DataFrame:
        """Return the rows of `ids`, in that order; null for ids that are not in the file."""
        wanted = pl.DataFrame({_ID: ids}, schema={_ID: pl.String})
        return wanted.join(self.frame, on=_ID, how="left", maintain_order="left").drop(
            _ID, ROW, self.id_column
        )


def read_entity_table(
    table: Table | None, named: str | None, events_column: str, role: Role, nulls: Sequence[str] = NULLS
) -> EntityTable | None:
    """Read the items or users file (`role` "item" or "user"), if any; `nulls` are the texts that are no ids.

    The id column is `named`, or as in the events, or has a common name. Raises ColumnError without one.
    """
    if table is None:
        return None
    id_column = choose_id(role, named, events_column, table.columns(), str(table.path))
    with readable(table.path):
        frame = table.frame.collect(engine="streaming")
    frame = frame.unique([name for name in frame.columns if name != ROW], keep="first", maintain_order=True)
    own = nulls_of(nulls, id_column)
    is_float = bool(float_texts(frame.lazy(), {id_column: own}))
    text = id_text(id_column, frame.schema[id_column], nulls=own, is_float=is_float)
    frame = frame.with_columns(text.alias(_ID))
    is_repeated = pl.col(_ID).is_not_null() & ~pl.col(_ID).is_first_distinct()
    bad = malformed_rows(f"{role}s file: malformed line", table)
    without_id = frame.filter(pl.col(_ID).is_null())
    for condition, verdict in id_verdicts(_ID, id_column, frame.schema, "id", own, is_float):
        bad += _rows(f"{role}s file: {verdict}", table, without_id.filter(condition), id_column)
        without_id = without_id.filter(~condition)
    bad += _rows(f"{role}s file: {REPEATED_ID}", table, frame.filter(is_repeated), id_column)
    return EntityTable(
        frame.filter(~is_repeated & pl.col(_ID).is_not_null()),
        table.path,
        id_column,
        table.is_text,
        bad,
        frame.filter(is_repeated)[_ID].n_unique(),
    )


def fields(
    frame: pl.DataFrame,
    names: tuple[str, ...] | None,
    read: pl.DataFrame,
    chosen: FeatureColumns,
    entries: EntityTable,
) -> dict[str, list[Any]]:
    """Return the columns for answers as lists of JSON values; `frame` is aligned with the vocabulary.

    Lists and numbers among the `chosen` features come as they were `read`. Of the others, stock and the
    like are numbers where all texts are; all others come as they are.
    Without `names`, these are all columns of texts, numbers, booleans, dates and lists of them, but vectors.
    Raises ColumnError for a named column that does not exist or that JSON can't express.
    """
    columns: dict[str, list[Any]] = {}
    features = {name for _, name in chosen.by_kind()}
    shown = [name for name in frame.columns if name not in chosen.vector]
    for name in shown if names is None else names:
        values = frame[require(name, frame.columns, str(entries.path), "answers")]
        if values.dtype == pl.String and name in (*chosen.multi, *chosen.number):
            values = read[name]
        elif values.dtype == pl.String and name not in features and CHANGING.search(name):
            values = plain_numbers(values)
        if is_printable(element_type(values.dtype)):
            columns[name] = _json_values(values, entries.is_text)
        elif names is not None:
            raise ColumnError(
                f"column {name!r} of {entries.path} holds {values.dtype}, which JSON can't "
                "express; leave it out of the fields"
            )
    return columns


def malformed_rows(kind: str, table: Table) -> list[BadRows]:
    """Return the malformed lines of a table, if any, as bad rows of this kind."""
    if not table.malformed.count:
        return []
    return [BadRows(kind=kind, count=table.malformed.count, examples=list(table.malformed.examples))]


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
    # In an untyped file, a column with only integers is an integer column, so are whole floats and truths.
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


def write_catalogs(
    folder: Path,
    config: PrepareConfig,
    source: Source,
    items: EntityTable | None,
    users: EntityTable | None,
    histories: Histories,
    splits: NDArray[np.int64],
) -> tuple[Features, Features, list[str]]:
    """Encode and write vocabularies, features and fields.

    Returns the features of users and items, and a sentence on each choice.
    """
    none = FeatureColumns()
    user_columns = (config.user_features or none).over(source.user_features or none)
    item_columns = (config.item_features or none).over(source.item_features or none)
    notes: list[str] = []
    words = config.queries is not None and config.queries.words
    read = partial(_entity_columns, settings=config.format, notes=notes, words=words)
    of_users, _, _ = read(users, histories.users, user_columns, "user", field_names=())
    of_items, answers, cold = read(items, histories.items, item_columns, "item", field_names=config.fields)
    if config.queries is not None:
        is_train = splits[:, 0] > histories.offsets[:-1]
        texts = [*map(text_of, histories.users.ids(range(len(histories.users))))]
        of_users, of_items = share_grams(of_users, of_items, texts, is_train, words)
    cold.save(folder)
    histories.users.save(folder / "users.json")
    histories.items.save(folder / "items.json")
    of_users.save(folder / "user_features")
    of_items.save(folder / "item_features")
    text = json.dumps({"fields": answers}, ensure_ascii=False, allow_nan=False)
    (folder / "catalogue.json").write_text(text, encoding="utf-8")
    return of_users, of_items, notes


def _entity_columns(
    entries: EntityTable | None,
    vocabulary: Vocabulary,
    chosen: FeatureColumns,
    role: Role,
    settings: FormatSettings,
    field_names: tuple[str, ...] | None,
    notes: list[str],
    words: bool,
) -> tuple[Features, dict[str, list[object]], ColdItems]:
    """Read the features and fields of the rows of `vocabulary`, and those of the items without an event."""
    count = len(vocabulary)
    known = [*map(str, vocabulary.ids(range(count)))]
    cold: list[Id] = []
    vectors: dict[str, VectorRows] = {}
    if entries is None:
        features, answers, others = Features(count, (), {}), {}, ColdItems()
    else:
        if entries.id_column in {name for _, name in chosen.by_kind()}:
            raise ColumnError(
                f"column {entries.id_column!r} of {entries.path} holds the ids of the {role}s, which say "
                f"nothing about other {role}s, so it can't be a feature; leave it out"
            )
        cold = entries.without_event(vocabulary) if role == "item" else []
        frame = entries.aligned([*known, *map(str, cold)])
        # In a log only users can be, and strangers always are.
        people = count - sum(one.startswith(STRANGER) for one in known if role == "user")
        if (absent := people - int(entries.ids.is_in(known).sum())) > 0:
            notes.append(
                f"{entries.path.name}: {absent:,} of {counted(people, role)} of the log are not in it, and "
                f"have no features; its ids are such as {', '.join(map(repr, entries.ids.head(EXAMPLES)))}"
            )
        read, chosen, note = read_features(frame, chosen, entries.path, role, settings)
        notes += [note] if note else []
        features = encode(read.head(count), chosen, words)
        columns = fields(frame, field_names, read, chosen, entries)
        answers = {name: values[:count] for name, values in columns.items()}
        later = {name: values[count:] for name, values in columns.items()}
        others = ColdItems(cold, raw_features(read.tail(len(cold)), chosen), later)
        for kind, name in chosen.by_kind():
            if kind == "vector":
                vectors[name] = column_vectors(frame[name], entries.path)
    for name, path in chosen.vector_files().items():
        vectors[name] = file_vectors(path, [*known, *map(str, cold)], role)
    for name, rows in vectors.items():
        own = rows.part(slice(count))
        features = features.with_vector(vector_feature(name, own), own)
        others.vectors[name] = rows.part(slice(count, None))
        notes.append(missing_note(name, own, role))
    if not cold or entries is None:
        return features, answers, ColdItems()
    note = f"{entries.path.name}: {len(cold):,} of {counted(count + len(cold), 'item')} have no event"
    if not features.features:
        notes.append(f"{note} and no features, so no model can rank them, and they are left out")
        return features, answers, ColdItems()
    notes.append(f"{note}; a model whose item tower reads features recommends them, others leave them out")
    return features, answers, others


def share_grams(
    queries: Features, items: Features, texts: Sequence[str], is_train: NDArray[np.bool_], words: bool
) -> tuple[Features, Features]:
    """Add the text of each query as the feature `query`, and give all texts one vocabulary.

    The vocabulary has the grams of the items' texts and of the training queries, at most `MOST_GRAMS`: those
    in the most texts. So both towers can begin with the same vector for each gram.

    Args:
        queries: the features of Q queries, without their texts.
        items: the features of N items.
        texts: the texts [Q] of the queries.
        is_train: bool [Q], whether a query is in the training part.
        words: whether texts are read as whole words too.
    """
    read = [grams(text, words) for text in texts]
    counts = Counter(gram for row, known in zip(read, is_train, strict=True) if known for gram in set(row))
    for feature in items.features:
        column = items.columns[feature.name]
        if feature.kind == "text" and isinstance(column, Bag):
            counts.update(dict(zip(feature.values, _texts_of(column, feature.size)[1:], strict=True)))
    values = tuple(sorted(sorted(counts, key=lambda gram: (-counts[gram], gram))[:MOST_GRAMS]))
    codes = {value: code for code, value in enumerate(values, start=1)}
    rows = [[code for gram in row if (code := codes.get(gram))] for row in read]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    bag = Bag(np.array([code for row in rows for code in row], dtype=np.int32), offsets)
    text = Feature(name=QUERY, kind="text", values=values, words=words)
    others = tuple(feature for feature in queries.features if feature.name != QUERY)
    asked = Features(queries.count, (text, *others), {**queries.columns, QUERY: bag})
    shared = tuple(
        feature.model_copy(update={"values": values}) if feature.kind == "text" else feature
        for feature in items.features
    )
    columns = {one.name: _recoded(one, items.columns[one.name], codes) for one in items.features}
    return asked, Features(items.count, shared, columns)


def _texts_of(bag: Bag, size: int) -> list[int]:
    """How many rows hold each of `size` codes."""
    rows = np.repeat(np.arange(len(bag)), np.diff(bag.offsets))
    pairs = distinct(rows * np.int64(size) + bag.values)
    counts: list[int] = np.bincount(pairs % size, minlength=size).tolist()
    return counts


def _recoded(feature: Feature, column: Column, codes: dict[str, int]) -> Column:
    """A text by other codes, without grams that have none."""
    if feature.kind != "text" or not isinstance(column, Bag):
        return column
    new = np.array([0, *(codes.get(value, 0) for value in feature.values)], dtype=np.int32)
    values = new[column.values]
    kept = np.concatenate([[0], np.cumsum(values > 0)])
    return Bag(values[values > 0], kept[column.offsets].astype(np.int64))
