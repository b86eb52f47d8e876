"""Questions for the next items of a log in a period of time, and how well models answer them.

Models of a growing log are trained anew or updated from the last one; baselines count; differences between
two models on the same questions have intervals.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.tower.bundle.bundle import Bundle
from turret.tower.retrieval import Retriever
from turret.training.baselines.interactions import sparse_rows
from turret.training.baselines.pair_models import pair_counts
from turret.training.commands import export_run, train_command
from turret.training.evaluation.metrics import difference_interval


def difference(ours: ArrayLike, theirs: ArrayLike, groups: ArrayLike) -> dict[str, float]:
    """The mean of `ours` - `theirs` over questions, with its 95 % interval.

    The interval is over groups, as the questions of one user or one session are not independent: the mean is
    the ratio of their sums to their numbers of questions, and varies as its linear part does (Cochran 1977,
    section 6.3). All three arguments have one entry a question.
    """
    apart = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    sums, counts = np.bincount(group, weights=apart), np.bincount(group)
    mean = float(apart.mean())
    low, high = difference_interval(mean + (sums - mean * counts) / counts.mean())
    return {"difference": mean, "low": low, "high": high}


HOUR = 3_600_000  # milliseconds
K = 20
METRICS = (f"recall@{K}", f"ndcg@{K}")
QUESTIONS_AT_ONCE = 256

Item = Any
"""The id of an item as the log has it, an int or a str."""
Answers = Callable[[Sequence[list[Item]]], list[list[Item]]]
"""Returns, for each history of item ids, oldest first, the best K item ids outside it."""


@dataclass(frozen=True)
class Questions:
    """For each question the history of item ids, the next item (`targets`), whether it had ever been clicked
    before (`known`), the session, and the features of the session's first click."""

    histories: list[list[Item]]
    targets: list[Item]
    known: list[bool]
    sessions: list[int]
    features: list[dict[str, Any]]


def read_clicks(path: Path, more: Sequence[str] = ()) -> pl.DataFrame:
    """Read `session_id`, `item_id`, `timestamp_ms` and the columns `more`, by time within a session."""
    clicks = pl.read_parquet(path, columns=["session_id", "item_id", "timestamp_ms", *more])
    return clicks.sort("session_id", "timestamp_ms", maintain_order=True)


def between(clicks: pl.DataFrame, start: int, end: int) -> pl.DataFrame:
    """The clicks from `start` to just before `end`, in milliseconds since 1970."""
    return clicks.filter(pl.col("timestamp_ms").is_between(start, end, closed="left"))


def questions(
    clicks: pl.DataFrame,
    start: int,
    end: int,
    repeats: bool = True,
    features: Sequence[str] = (),
    by_click: bool = False,
) -> Questions:
    """Every click from `start` to `end` but the first of its session, with the session's clicks before it.

    Without `repeats`, an item that its session has had before is no target. `features` are columns, read in
    the session's first click, or `by_click` in the click of the target: the context of the request.
    """
    period_clicks = between(clicks, start, end)
    known = set(clicks.filter(pl.col("timestamp_ms") < start)["item_id"].unique().to_list())
    theirs = period_clicks["session_id"].unique().implode()
    before = clicks.filter((pl.col("timestamp_ms") < end) & pl.col("session_id").is_in(theirs))
    result = Questions([], [], [], [], [])
    grouped = before.group_by("session_id", maintain_order=True).agg("item_id", "timestamp_ms", *features)
    for session, items, times, *values in grouped.iter_rows():
        first = next(place for place, time in enumerate(times) if time >= start)
        seen = set(items[:first])
        for place in range(max(first, 1), len(items)):
            seen.add(items[place - 1])
            if repeats or items[place] not in seen:
                result.histories.append(items[:place])
                result.targets.append(items[place])
                result.known.append(items[place] in known)
                result.sessions.append(session)
                read = (of_clicks[place if by_click else 0] for of_clicks in values)
                result.features.append(dict(zip(features, read, strict=True)))
    return result


def by_bundle(folder: Path, features: Sequence[dict[str, Any]] | None = None) -> Answers:
    """Answers as the service gives them: by the towers, or by popularity where no item is known.

    `features` has the user's features for each history.
    """
    bundle = Bundle.open(folder, verify=False)
    retriever, names = Retriever(bundle), bundle.vocabulary

    def answers(histories: Sequence[list[Item]]) -> list[list[Item]]:
        rankings: list[list[Item]] = []
        for first in range(0, len(histories), QUESTIONS_AT_ONCE):
            block = slice(first, first + QUESTIONS_AT_ONCE)
            read = [names.known_rows(history)[0] for history in histories[block]]
            theirs = features[block] if features is not None else [{}] * len(read)
            known = [rows for rows in read if len(rows)]
            users = [user_features for user_features, rows in zip(theirs, read, strict=True) if len(rows)]
            ranked = iter(retriever.recommend(known, users, K, known))
            for rows in read:
                best = next(ranked) if len(rows) else retriever.popular(K, rows)
                rankings.append(list(names.ids(best.rows)))
        return rankings

    return answers


def gains(answers: Answers, question_set: Questions) -> NDArray[np.float64]:
    """recall@K and NDCG@K of every question [Q, 2], which has one right answer.

    An item that no model can know yet counts as missed.
    """
    values = np.zeros((len(question_set.targets), 2))
    for row, items, target in zip(values, answers(question_set.histories), question_set.targets, strict=True):
        if target in items:
            row[:] = 1.0, 1.0 / math.log2(items.index(target) + 2)
    return values


def by_order(items: Sequence[Item]) -> Answers:
    """The same items for everybody, best first, without those in the history."""

    def answers(histories: Sequence[list[Item]]) -> list[list[Item]]:
        results = []
        for history in histories:
            seen = set(history)
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
    """Items by the number of sessions that they share with each of the `newest` items of the history, summed.

    Ties, and all items where none of these occurs, are in order of clicks. `together` is the column of
    sessions.
    """
    items = most_clicked(clicks)
    row_of = {item: row for row, item in enumerate(items)}
    counts = np.vstack([block.toarray() for _, block in pair_counts(_sessions(clicks, together, items))])
    behind = np.arange(len(items)) / (len(items) + 1)

    def answers(histories: Sequence[list[Item]]) -> list[list[Item]]:
        return [[items[row] for row in best(history)] for history in histories]

    def best(history: list[Item]) -> list[int]:
        read = {row_of[item] for item in history[-newest:] if item in row_of}
        # The counts are whole numbers, so that subtracting less than one orders ties alone.
        keys = counts[list(read)].sum(axis=0, dtype=np.float64) - behind
        keys[[row_of[item] for item in history if item in row_of]] = -np.inf
        first = np.argpartition(-keys, min(K, len(keys)) - 1)[:K]
        return [int(row) for row in first[np.argsort(-keys[first])] if keys[row] > -np.inf]

    return answers


def _sessions(clicks: pl.DataFrame, together: str, items: Sequence[Item]) -> Any:
    """The distinct items of each session, as places in `items`: a sparse matrix."""
    place = pl.Series(items, dtype=clicks.schema["item_id"])
    pairs = clicks.select(
        session=pl.col(together).rank("dense") - 1,
        row=pl.col("item_id").replace_strict(place, pl.int_range(len(items), eager=True)),
    )
    pairs = pairs.unique().sort("session", "row")
    lengths = np.bincount(pairs["session"].to_numpy())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = pairs["row"].cast(pl.Int32).to_numpy()
    return sparse_rows(offsets, rows, len(items))


# The least weight of a click: a half-life may leave the oldest clicks with none.
LEAST_WEIGHT = 1e-3


class Published(NamedTuple):
    """A bundle, and the seconds from the log to it."""

    folder: Path
    seconds: float


@dataclass(frozen=True)
class Retrainer:
    """Trains an experiment on parts of a log; prepared data, runs and bundles are below `work`.

    With a `half_life`, in milliseconds, a click counts half as much as one that is that much younger.
    `features` are columns: their values in a session's first click are features of the session, or `by_click`
    those of each click are its context.
    """

    clicks: pl.DataFrame
    work: Path
    experiment: str
    half_life: int | None = None
    features: tuple[str, ...] = ()
    by_click: bool = False

    def prepared(self, start: int, end: int) -> Path:
        """Prepare the clicks from `start` to before `end`, all of them for training."""
        self.work.mkdir(parents=True, exist_ok=True)
        columns = {"user": "session_id", "item": "item_id", "time": "timestamp_ms"}
        clicks = between(self.clicks, start, end)
        if self.half_life is not None:
            age = (end - pl.col("timestamp_ms")) / self.half_life
            clicks = clicks.with_columns(weight=(2.0**-age).clip(LEAST_WEIGHT))
            columns["weight"] = "weight"
        clicks.write_parquet(self.work / "clicks.parquet")
        config: dict[str, Any] = {
            "source": self.work / "clicks.parquet",
            "columns": columns,
            "split": {"kind": "time", "validation_from": moment(end), "test_from": moment(end)},
        }
        if self.by_click:
            config["context"] = [f"{name}=category" for name in self.features]
        elif self.features:
            sessions = clicks.group_by("session_id").agg(pl.col(name).first() for name in self.features)
            sessions.write_parquet(self.work / "sessions.parquet")
            config["users"] = self.work / "sessions.parquet"
            config["user_features"] = {"category": self.features}
            columns["user_id"] = "session_id"
        prepare(PrepareConfig.model_validate(config), self.work / "prepared", overwrite=True)
        return self.work / "prepared"

    def retrained(self, start: int, until: int, version: str, settings: Sequence[str]) -> Published:
        """A bundle trained from scratch on the clicks from `start` to `until`."""
        clock = time.perf_counter()
        data = self.prepared(start, until)
        train_command(self.work / "run", data, self.experiment, settings, overwrite=True)
        return self._exported(version, clock)

    def updated(
        self, origin: Path, start: int, since: int, until: int, version: str, settings: Sequence[str]
    ) -> Published:
        """A warm start from `origin`: it reads clicks from `start`, and learns those from `since` on."""
        clock = time.perf_counter()
        data = self.prepared(start, until)
        settings = [*settings, f"training.since={moment(since)}"]
        train_command(self.work / "run", data, None, settings, overwrite=True, origin=origin)
        return self._exported(version, clock)

    def _exported(self, version: str, clock: float) -> Published:
        folder = export_run(self.work / "run", None, self.work / "bundles", version)
        return Published(folder, time.perf_counter() - clock)


def moment(milliseconds: int) -> str:
    """A time in the format of settings."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
