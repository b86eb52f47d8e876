"""Pairs of a query and its item, such as a question and its answer, as the log of events that training reads.

A query takes the place of a user, and is identified by its text: its rows are the events of one "user", so
that all its rows fall into one part of the split.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from turret.data.errors import ColumnError, ConfigurationError
from turret.data.features.texts import CONTEXT
from turret.data.reading.columns import choose, require
from turret.data.reading.schema import FeatureColumns, PrepareConfig, QuerySettings
from turret.data.reading.tables import EXAMPLES, OWN, ROW, Malformed, Source, Table, readable
from turret.data.vocabulary import ID_LENGTH

ORDER = f"{OWN}order"
"""The column that stands for the times of pairs, which have none."""
_PART, _ITEM_ID = f"{OWN}part", "item_id"
# Usual names of the columns.
_QUERIES = ("query", "question", "text", "utterance", "question_1")
_ITEMS = ("item", "item_id", "answer_id", "answer", "intent", "document", "question_2")
_PARTS = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2}
# Validation and test have the queries from these numbers on, among each hundred.
_VALIDATION_FROM, _TEST_FROM = 80, 90
# A training query is paired with this number of other queries of the same answer.
_PAIRS = 4


def open_queries(settings: QuerySettings, config: PrepareConfig, table: Table, items: Table | None) -> Source:
    """Divide the pairs of `table` into parts by the text of their query.

    Without `items`, the distinct texts of the item column are the items; with settings.match = "questions"
    the items are the training queries. Raises ColumnError for a missing column or an unknown name of a part.
    """
    items_table, users = items, None
    query, item, split, columns = _columns(settings, config, table)
    with readable(table.path):
        rows = table.frame.collect(engine="streaming").with_columns(pl.lit(0).alias(ORDER))
    rows = _with_parts(rows, query, split, table)
    if settings.context:
        rows, contexts = _in_contexts(rows, query, settings.context)
        users = _table_of(contexts, table)
    text = "question"
    if settings.match == "questions":
        rows, stored = _stored_questions(rows, query, item, table)
        items = _table_of(stored, table)
    elif items is None:
        text = "text" if item == _ITEM_ID else item
        texts = rows[item].cast(pl.String).unique().drop_nulls().sort()
        ids = {item_text: id_of_text(item_text) for item_text in texts if item_text.strip()}
        items = _table_of(pl.DataFrame({_ITEM_ID: ids.values(), text: ids.keys()}), table)
        named = pl.col(item).cast(pl.String).replace_strict(ids, default=None, return_dtype=pl.String)
        rows = rows.with_columns(named)
    parts = [
        (part, replace(table, frame=rows.filter(pl.col(_PART) == part).lazy(), malformed=Malformed()))
        for part in rows[_PART].unique().sort().to_list()
    ]
    parts[0] = (parts[0][0], replace(parts[0][1], malformed=table.malformed))
    if items is not items_table:
        columns["item_id"] = _ITEM_ID
    return Source(
        parts=tuple(parts),
        items=items,
        users=users,
        columns=config.columns.model_copy(update=columns),
        item_features=None if items is items_table else FeatureColumns(text=(text,)),
    )


def _columns(
    settings: QuerySettings, config: PrepareConfig, table: Table
) -> tuple[str, str, str | None, dict[str, str]]:
    """Return the columns of queries, items and parts (if any), and the columns of events by role."""
    names, where = table.columns, str(table.path)
    query = choose("query", settings.query, _QUERIES, names, where)
    item = choose("item", config.columns.item, [name for name in _ITEMS if name != query], names, where)
    split = settings.split or ("split" if "split" in names else None)
    if split is not None:
        require(split, names, where, "parts (--query-split)")
    for name in settings.context:
        require(name, names, where, "context (--query-context)")
    columns = {"user": query, "item": item, "time": ORDER}
    columns |= {
        role: role
        for role in ("label", "weight")
        if role in names and role not in (query, item) and getattr(config.columns, role) is None
    }
    if settings.match == "questions" and "label" in columns:
        raise ConfigurationError(
            f"{where} has labels, so its pairs already say which questions are alike; leave out "
            "--match questions"
        )
    if settings.match == "questions" and settings.context:
        raise ConfigurationError(
            "stored questions have no context; leave out --query-context, or --match questions"
        )
    return query, item, split, columns


def _table_of(frame: pl.DataFrame, table: Table) -> Table:
    numbered = frame.with_row_index(ROW, offset=1).lazy()
    return replace(table, frame=numbered, malformed=Malformed(), is_text=False, cut=None)


def _with_parts(rows: pl.DataFrame, query: str, split: str | None, table: Table) -> pl.DataFrame:
    """Add the part of each distinct query text: the earliest part in the column `split`, or one by a hash.

    If the column has no validation, the hash chooses the validation part.
    """
    distinct = rows[query].unique()
    hashed = dict(zip(distinct, map(_part_of, distinct.cast(pl.String)), strict=True))
    by_hash = pl.col(query).replace_strict(hashed, return_dtype=pl.Int8)
    if split is None:
        return rows.with_columns(by_hash.alias(_PART))
    folded = pl.col(split).cast(pl.String).str.strip_chars().str.to_lowercase()
    unknown = rows.select(folded.filter(~folded.is_in(list(_PARTS))).unique()).to_series()
    if len(unknown) or rows[split].null_count():
        shown = ", ".join(map(repr, unknown.drop_nulls().head(EXAMPLES))) or "no value"
        raise ColumnError(
            f"column {split!r} of {table.path} holds {shown}; the parts are train, validation, dev and test"
        )
    part = folded.replace_strict(_PARTS, return_dtype=pl.Int8).min().over(query)
    rows = rows.with_columns(part.alias(_PART))
    if (rows[_PART] == 1).any():
        return rows
    is_held = (pl.col(_PART) == 0) & (by_hash == 1)
    return rows.with_columns(pl.when(is_held).then(1).otherwise(_PART).cast(pl.Int8).alias(_PART))


def _part_of(text: str | None) -> int:
    """Return 0, 1 or 2 by the SHA-256 of a text: the same on every machine and with any other rows."""
    number = int(hashlib.sha256((text or "").encode()).hexdigest()[:8], 16) % 100
    return (number >= _VALIDATION_FROM) + (number >= _TEST_FROM)


def id_of_text(text: str) -> str:
    """Return the id of an item that is told by its text: the text, or a digest if it is too long."""
    return text if len(text) <= ID_LENGTH else hashlib.sha256(text.encode()).hexdigest()[:16]


def _in_contexts(rows: pl.DataFrame, query: str, context: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Distinguish queries of one text by context; return the pairs, and each query with its context."""
    digests = [hashlib.sha256(repr(row).encode()).hexdigest()[:12] for row in rows.select(context).rows()]
    # Without a text, the row is no pair.
    rows = rows.with_columns(pl.col(query).cast(pl.String) + CONTEXT + pl.Series(digests))
    contexts = rows.select(query, *context).drop_nulls(query).unique(query, keep="first", maintain_order=True)
    return rows, contexts


def _stored_questions(
    rows: pl.DataFrame, query: str, item: str, table: Table
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make the training queries the items, each with its answer, and pair queries of the same answer.

    A training query is paired with some other queries, the next ones in order; a query of another part with
    all. A query with several answers is stored with each answer.
    """
    # The names are fixed, as the names in the file may be names that this function uses.
    rows = rows.select(ROW, ORDER, _PART, question=query, answer=item).drop_nulls()
    rows = rows.unique(["question", "answer"], keep="first", maintain_order=True)
    stored = rows.filter(pl.col(_PART) == 0)
    if stored.is_empty():
        raise ConfigurationError(f"{table.path} has no training query to store; see --query-split")
    is_shared = stored["question"].is_duplicated()
    texts = [
        f"{text} ({answer})" if shared else str(text)
        for text, answer, shared in zip(stored["question"], stored["answer"], is_shared, strict=True)
    ]
    stored = stored.with_columns(
        pl.Series(_ITEM_ID, [*map(id_of_text, texts)]),
        place=pl.int_range(pl.len()).over("answer"),
        count=pl.len().over("answer").cast(pl.Int64),
    )
    targets = stored.select("answer", _ITEM_ID, target="place")
    distance = (pl.col("target") - pl.col("place")) % pl.col("count")
    train = stored.drop(_ITEM_ID).join(targets, on="answer").filter(distance.is_between(1, _PAIRS))
    others = rows.filter(pl.col(_PART) > 0).join(targets, on="answer")
    columns = [ROW, ORDER, _PART, pl.col("question").alias(query), pl.col(_ITEM_ID).alias(item)]
    pairs = pl.concat([train.select(columns), others.select(columns)])
    return pairs, stored.select(_ITEM_ID, "question", "answer")
