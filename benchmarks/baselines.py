"""What a shop or a news site has without any training: the popular, the recent, and what goes together."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from benchmarks.next_items import Answers, Item, K
from turret.training.baselines.interactions import Interactions
from turret.training.baselines.pair_counts import pair_counts


def by_order(items: Sequence[Item]) -> Answers:
    """The same items for everybody, best first, but for those in the history."""

    def answers(histories: Sequence[list[Item]]) -> list[list[Item]]:
        results = []
        for one in histories:
            seen = set(one)
            results.append([item for item in items[: K + len(seen)] if item not in seen][:K])
        return results

    return answers


def most_clicked(clicks: pl.DataFrame) -> list[Item]:
    """Items by their number of clicks; ties by id."""
    counted = clicks.group_by("item_id").len().sort("len", "item_id", descending=[True, False])
    return counted["item_id"].to_list()


def popular(clicks: pl.DataFrame) -> Answers:
    """Items by their number of clicks; ties by id."""
    return by_order(most_clicked(clicks))


def most_recent(clicks: pl.DataFrame) -> Answers:
    """Items by when they were clicked last; ties by id."""
    last = clicks.group_by("item_id").agg(pl.col("timestamp_ms").max())
    return by_order(last.sort("timestamp_ms", "item_id", descending=[True, False])["item_id"].to_list())


def co_occurring(clicks: pl.DataFrame, newest: int, together: str = "session_id") -> Answers:
    """Items by in how many sessions they are with the `newest` items of the history, summed over these.

    Ties, and all where none of these occurs, by number of clicks. `together` is the column that tells what
    counts as one session.
    """
    items = most_clicked(clicks)
    row_of = {item: row for row, item in enumerate(items)}
    counts = pair_counts(_sessions(clicks, together, items))
    behind = np.arange(len(items)) / (len(items) + 1)

    def answers(histories: Sequence[list[Item]]) -> list[list[Item]]:
        return [[items[row] for row in best(one)] for one in histories]

    def best(history: list[Item]) -> list[int]:
        read = {row_of[item] for item in history[-newest:] if item in row_of}
        # The counts are whole numbers, so that less than one orders ties alone.
        keys = counts[list(read)].sum(axis=0, dtype=np.float64) - behind
        keys[[row_of[item] for item in history if item in row_of]] = -np.inf
        first = np.argpartition(-keys, min(K, len(keys)) - 1)[:K]
        return [int(row) for row in first[np.argsort(-keys[first])] if keys[row] > -np.inf]

    return answers


def _sessions(clicks: pl.DataFrame, together: str, items: Sequence[Item]) -> Interactions:
    """The distinct items of each session, as places in `items`."""
    place = pl.Series(items, dtype=clicks.schema["item_id"])
    pairs = clicks.select(
        session=pl.col(together).rank("dense") - 1,
        row=pl.col("item_id").replace_strict(place, pl.int_range(len(items), eager=True)),
    )
    pairs = pairs.unique().sort("session", "row")
    lengths = np.bincount(pairs["session"].to_numpy())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = pairs["row"].cast(pl.Int32).to_numpy()
    return Interactions.of_rows(offsets, rows, np.zeros(len(items), dtype=np.int64))
