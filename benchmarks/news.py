"""A click log of news, hour by hour: what is asked in an hour, and how well it is answered."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tower.bundle import Bundle
from tower.retriever import Retriever

HOUR = 3_600_000  # milliseconds
K = 20
QUESTIONS_AT_ONCE = 256

Answers = Callable[[Sequence[list[int]]], list[list[int]]]
"""For each history of item ids, oldest first, the first K item ids outside it."""


@dataclass(frozen=True)
class Questions:
    """Histories of item ids, what was clicked next, and whether that item had ever been clicked before."""

    histories: list[list[int]]
    targets: list[int]
    known: list[bool]


def read_clicks(path: Path) -> pl.DataFrame:
    """`session_id`, `item_id` and `timestamp_ms` of every click, in order of time within a session."""
    clicks = pl.read_parquet(path, columns=["session_id", "item_id", "timestamp_ms"])
    return clicks.sort("session_id", "timestamp_ms", maintain_order=True)


def between(clicks: pl.DataFrame, start: int, end: int) -> pl.DataFrame:
    """The clicks from `start` to just before `end`, in milliseconds since 1970."""
    return clicks.filter(pl.col("timestamp_ms").is_between(start, end, closed="left"))


def questions(clicks: pl.DataFrame, start: int, end: int) -> Questions:
    """Every click of that time but the first of its session, with the session's clicks before it."""
    asked = between(clicks, start, end)
    known = set(clicks.filter(pl.col("timestamp_ms") < start)["item_id"].unique().to_list())
    sessions = clicks.filter(
        (pl.col("timestamp_ms") < end) & pl.col("session_id").is_in(asked["session_id"].unique().implode())
    )
    histories, targets = [], []
    grouped = sessions.group_by("session_id", maintain_order=True).agg("item_id", "timestamp_ms")
    for items, times in zip(grouped["item_id"].to_list(), grouped["timestamp_ms"].to_list(), strict=True):
        for place in range(1, len(items)):
            if times[place] >= start:
                histories.append(items[:place])
                targets.append(items[place])
    return Questions(histories, targets, [target in known for target in targets])


def by_bundle(folder: Path) -> Answers:
    """Answers as the service gives them: by the towers, or by popularity where no item is known."""
    bundle = Bundle.open(folder, verify=False)
    retriever, names = Retriever(bundle), bundle.vocabulary

    def answers(histories: Sequence[list[int]]) -> list[list[int]]:
        found: list[list[int]] = []
        for first in range(0, len(histories), QUESTIONS_AT_ONCE):
            read = [names.known_rows(one)[0] for one in histories[first : first + QUESTIONS_AT_ONCE]]
            known = [rows for rows in read if len(rows)]
            ranked = iter(retriever.recommend(known, [{}] * len(known), K, known))
            for rows in read:
                best = next(ranked) if len(rows) else retriever.popular(K, rows)
                found.append([int(one) for one in names.ids(best.rows)])
        return found

    return answers


def by_order(items: Sequence[int]) -> Answers:
    """The same items for everybody, best first, but for those in the history."""

    def answers(histories: Sequence[list[int]]) -> list[list[int]]:
        return [[item for item in items[: K + len(one)] if item not in one][:K] for one in histories]

    return answers


def popular(clicks: pl.DataFrame) -> Answers:
    """Items by their number of clicks; ties by id."""
    counted = clicks.group_by("item_id").len().sort("len", "item_id", descending=[True, False])
    return by_order(counted["item_id"].to_list())


def most_recent(clicks: pl.DataFrame) -> Answers:
    """Items by when they were clicked last; ties by id."""
    last = clicks.group_by("item_id").agg(pl.col("timestamp_ms").max())
    return by_order(last.sort("timestamp_ms", "item_id", descending=[True, False])["item_id"].to_list())


def gains(answers: Answers, asked: Questions) -> dict[str, list[float]]:
    """recall@K and NDCG@K of every question, which has one right answer.

    An item that nobody can know yet counts as missed.
    """
    recall, ndcg = [], []
    for found, target in zip(answers(asked.histories), asked.targets, strict=True):
        place = found.index(target) if target in found else None
        recall.append(0.0 if place is None else 1.0)
        ndcg.append(0.0 if place is None else 1.0 / math.log2(place + 2))
    return {f"recall@{K}": recall, f"ndcg@{K}": ndcg}


def mean(values: Sequence[float]) -> float:
    """The mean, as a plain number."""
    return float(np.mean(values))
