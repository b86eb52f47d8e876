"""The texts of queries and of their items, encoded by one vocabulary of grams."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turret.data.features import QUERY, Bag, Column, Feature, Features, grams
from turret.data.ranges import distinct

MOST_GRAMS = 100_000
"""The size of the vocabulary, by which tables and the state of their optimiser grow."""


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
