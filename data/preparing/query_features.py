"""The texts of queries and of their items, encoded by one vocabulary of grams."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turret.data.features import QUERY, Bag, Column, Feature, Features, grams


def share_grams(
    queries: Features, items: Features, texts: Sequence[str], is_train: NDArray[np.bool_], words: bool
) -> tuple[Features, Features]:
    """Add the text of each query as the feature `query`, and give all texts one vocabulary.

    The vocabulary has the grams of the items' texts and of the training queries, so both towers can begin
    with the same vector for each gram.

    Args:
        queries: the features of Q queries, without their texts.
        items: the features of N items.
        texts: the texts [Q] of the queries.
        is_train: bool [Q], whether a query is in the training part.
        words: whether texts are read as whole words too.
    """
    found = {
        gram for text, known in zip(texts, is_train, strict=True) if known for gram in grams(text, words)
    }
    found.update(*(feature.values for feature in items.features if feature.kind == "text"))
    values = tuple(sorted(found))
    codes = {value: code for code, value in enumerate(values, start=1)}
    text = Feature(name=QUERY, kind="text", values=values, words=words)
    rows = [[code for gram in grams(one, words) if (code := codes.get(gram))] for one in texts]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    bag = Bag(np.array([code for row in rows for code in row], dtype=np.int32), offsets)
    own = {name: column for name, column in queries.columns.items() if name != QUERY}
    others = tuple(feature for feature in queries.features if feature.name != QUERY)
    asked = Features(queries.count, (text, *others), {QUERY: bag, **own})
    shared = tuple(
        feature.model_copy(update={"values": values}) if feature.kind == "text" else feature
        for feature in items.features
    )
    columns = {one.name: _recoded(one, items.columns[one.name], codes) for one in items.features}
    return asked, Features(items.count, shared, columns)


def _recoded(feature: Feature, column: Column, codes: dict[str, int]) -> Column:
    if feature.kind != "text" or not isinstance(column, Bag):
        return column
    new = np.array([0, *(codes[value] for value in feature.values)], dtype=np.int32)
    return Bag(new[column.values], column.offsets)
