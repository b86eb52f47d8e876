"""Pairs of a query and its item, such as a question and its answer, as the log of events that training reads.

A query takes the place of a user, and is told by its text: its rows are the events of one "user", so that all
of them fall into one part of the split.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from turret.data.errors import ColumnError, ConfigurationError
from turret.data.features import CONTEXT
from turret.data.reading.columns import choose, require
from turret.data.reading.schema import ColumnSettings, FeatureColumns, PrepareConfig, QuerySettings
from turret.data.reading.tables import EXAMPLES, ROW, Malformed, Source, Table, readable
from turret.data.vocabulary import ID_LENGTH

ORDER = "__order"
"""The column that stands for the times of pairs, which have none."""
_PART, _ITEM_ID, _QUERY_ID = "__part", "item_id", "__query_id"
# Usual names of the columns.
_QUERIES = ("query", "question", "text", "utterance", "question_1")
_ITEMS = ("item", "item_id", "answer_id", "answer", "intent", "document", "question_2")
_PARTS = {"train": 0, "training": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "test": 2}
# Of a hundred queries, those from these numbers on are validation and test.
_VALIDATION_FROM, _TEST_FROM = 80, 90
# Other queries of the same answer that a training query is paired with.
_PAIRS = 4


def open_queries(settings: QuerySettings, config: PrepareConfig, table: Table, items: Table | None) -> Source:
    """Divide the pairs of `table` into parts by the text of their query.

    Without `items`, the distinct texts of the item column are the items; with settings.match = "questions"
    these are the training queries. Raises ColumnError for a missing column or an unknown name of a part.
    """
    names, given = table.columns(), items
    where = str(table.path)
    query = choose("query", settings.query, _QUERIES, names, where)
    item = choose("item", config.columns.item, [name for name in _ITEMS if name != query], names, where)
    split = settings.split or ("split" if "split" in names else None)
    if split is not None:
        require(split, names, where, "parts (--query-split)")
    with readable(table.path):
        texts = table.frame.select(query, *([split] if split else [])).collect(engine="streaming")
    parts = _parts(texts, query, split, table)
    frame = table.frame.with_columns(pl.lit(0).alias(ORDER)).join(
        parts.lazy(), on=query, how="left", maintain_order="left", nulls_equal=True
    )
    users = None
    if settings.context:
        for name in settings.context:
            require(name, names, where, "context (--query-context)")
        frame, users = _in_contexts(frame, query, settings.context, table)
    optional = {role: role for role in ("label", "weight") if role in names and role not in (query, item)}
    if settings.match == "questions":
        if "label" in optional:
            raise ConfigurationError(
                f"{table.path} has labels, so its pairs already say which questions are alike; leave out "
                "--match questions"
            )
        if settings.context:
            raise ConfigurationError(
                "stored questions have no context; leave out --query-context, or --match questions"
            )
        frame, items = _stored_questions(frame, query, item, table)
        text = "question"
    elif items is None:
        frame, items = _texts_as_items(frame, item, table)
        text = _text_column(item)
    tables = [
        (part, replace(table, frame=frame.filter(pl.col(_PART) == part), malformed=Malformed()))
        for part in sorted(parts[_PART].unique().to_list())
    ]
    tables[0] = (tables[0][0], replace(tables[0][1], malformed=table.malformed))
    return Source(
        parts=tuple(tables),
        items=items,
        users=users,
        files=table.files,
        columns=ColumnSettings(
            user=query, item=item, time=ORDER, item_id=None if items is given else _ITEM_ID, **optional
        ),
        item_features=None if items is given else FeatureColumns(text=(text,)),
    )


def _parts(texts: pl.DataFrame, query: str, split: str | None, table: Table) -> pl.DataFrame:
    """The part of each distinct text of a query: by the column `split`, the earliest one, or by a hash.

    A column without validation leaves it to the hash.
    """
    if split is None:
        distinct = texts[query].unique()
        numbers = [_part_of(text) for text in distinct.cast(pl.String)]
        return pl.DataFrame({query: distinct, _PART: numbers}, schema={query: distinct.dtype, _PART: pl.Int8})
    folded = pl.col(split).cast(pl.String).str.strip_chars().str.to_lowercase()
    unknown = texts.select(folded.filter(~folded.is_in(list(_PARTS))).unique()).to_series()
    if len(unknown) or texts[split].null_count():
        shown = ", ".join(map(repr, unknown.head(EXAMPLES))) or "no value"
        raise ColumnError(
            f"column {split!r} of {table.path} holds {shown}; the parts are train, validation, dev and test"
        )
    part = folded.replace_strict(_PARTS, return_dtype=pl.Int8).min()
    parts = texts.group_by(query, maintain_order=True).agg(part.alias(_PART))
    if (parts[_PART] == 1).any():
        return parts
    held = [_part_of(text) == 1 for text in parts[query].cast(pl.String)]
    return parts.with_columns(
        pl.when(pl.Series(held) & (pl.col(_PART) == 0)).then(1).otherwise(_PART).cast(pl.Int8).alias(_PART)
    )


def _part_of(text: str | None) -> int:
    """0, 1 or 2 by the SHA-256 of a text: the same on every machine, whatever the other rows are."""
    number = int(hashlib.sha256((text or "").encode()).hexdigest()[:8], 16) % 100
    return (number >= _VALIDATION_FROM) + (number >= _TEST_FROM)


def id_of_text(text: str) -> str:
    """The id of an item that is told by its text: the text, or a digest of a longer one than ids may be."""
    return text if len(text) <= ID_LENGTH else hashlib.sha256(text.encode()).hexdigest()[:16]


def _in_contexts(
    frame: pl.LazyFrame, query: str, context: Sequence[str], table: Table
) -> tuple[pl.LazyFrame, Table]:
    """Tell queries of one text by their contexts, and give each its context as features."""
    with readable(table.path):
        rows = frame.select(query, *context).drop_nulls(query).unique(maintain_order=True)
        distinct = rows.collect(engine="streaming")
    digests = [hashlib.sha256(repr(row).encode()).hexdigest()[:12] for row in distinct.select(context).rows()]
    ids = [f"{text}{CONTEXT}{digest}" for text, digest in zip(distinct[query], digests, strict=True)]
    named = distinct.with_columns(pl.Series(_QUERY_ID, ids))
    joined = frame.join(
        named.lazy(), on=[query, *context], how="left", maintain_order="left", nulls_equal=True
    )
    pairs = joined.with_columns(pl.col(_QUERY_ID).alias(query)).drop(_QUERY_ID)
    return pairs, _items_table(named.select(pl.col(_QUERY_ID).alias(query), *context), table)


def _items_table(frame: pl.DataFrame, table: Table) -> Table:
    numbered = frame.with_row_index(ROW, offset=1).lazy()
    return replace(table, frame=numbered, malformed=Malformed(), is_text=False)


def _text_column(item: str) -> str:
    return "text" if item == _ITEM_ID else item


def _texts_as_items(frame: pl.LazyFrame, item: str, table: Table) -> tuple[pl.LazyFrame, Table]:
    """Make the distinct texts of the column `item` the items, and name them by their ids in the pairs."""
    frame = frame.with_columns(pl.col(item).cast(pl.String))
    with readable(table.path):
        texts = frame.select(item).unique().drop_nulls().collect(engine="streaming")[item].sort()
    texts = texts.filter(texts.str.strip_chars() != "")
    ids = pl.DataFrame({item: texts, _ITEM_ID: [id_of_text(text) for text in texts]})
    named = frame.join(ids.lazy(), on=item, how="left", maintain_order="left")
    pairs = named.with_columns(pl.col(_ITEM_ID).alias(item)).drop(_ITEM_ID)
    return pairs, _items_table(ids.rename({item: _text_column(item)}), table)


def _stored_questions(frame: pl.LazyFrame, query: str, item: str, table: Table) -> tuple[pl.LazyFrame, Table]:
    """Make the training queries the items, each with its answer, and pair queries of the same answer.

    A training query is paired with some others, the next ones in order; a query of another part with all. One
    of several answers is stored with each.
    """
    with readable(table.path):
        rows = frame.select(ROW, query, item, ORDER, _PART).drop_nulls().collect(engine="streaming")
    rows = rows.unique([query, item], keep="first", maintain_order=True)
    stored = rows.filter(pl.col(_PART) == 0)
    if stored.is_empty():
        raise ConfigurationError(f"{table.path} has no training query to store; see --query-split")
    is_shared = stored[query].is_duplicated()
    texts = [
        f"{text} ({answer})" if shared else str(text)
        for text, answer, shared in zip(stored[query], stored[item], is_shared, strict=True)
    ]
    stored = stored.with_columns(
        pl.Series(_ITEM_ID, [id_of_text(text) for text in texts]),
        place=pl.int_range(pl.len()).over(item),
        count=pl.len().over(item),
    )
    targets = stored.select(item, _ITEM_ID, target=pl.col("place"))
    train = (
        stored.drop(_ITEM_ID)
        .join(targets, on=item)
        .filter(
            ((pl.col("target") - pl.col("place").cast(pl.Int64)) % pl.col("count").cast(pl.Int64)).is_between(
                1, _PAIRS
            )
        )
    )
    others = rows.filter(pl.col(_PART) > 0).join(targets, on=item)
    columns = [ROW, query, pl.col(_ITEM_ID).alias(item), ORDER, _PART]
    pairs = pl.concat([train.select(columns), others.select(columns)])
    return pairs.lazy(), _items_table(stored.select(_ITEM_ID, question=query, answer=item), table)
