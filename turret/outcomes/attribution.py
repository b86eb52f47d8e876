"""Attribution: the answer and the place that each stored event is an outcome of."""

from collections.abc import Collection
from typing import Any

import polars as pl

from turret.data.answers.form import visitor_of
from turret.data.errors import ConfigurationError, brief
from turret.scoring.stored_users import OpenStore
from turret.scoring.users import in_blocks

EVENTS = pl.Schema(
    {
        "visitor": pl.String(),
        "user": pl.String(),
        "item": pl.String(),
        "time": pl.Datetime("ms", "UTC"),
        "kind": pl.String(),
        "answer_id": pl.String(),
    }
)
_PLACE = ["answer_id", "visitor", "version", "route", "time", "place", "item"]


def read_events(store: OpenStore, key: bytes, first: int, last: int) -> pl.DataFrame:
    """Read the events with first <= time < last, in milliseconds since 1970, with the visitor of each."""
    frames, visitors = [pl.DataFrame(schema=EVENTS)], dict[str, str]()
    for events in in_blocks(store.events(first, last), 100_000):
        columns: dict[str, list[Any]] = {name: [] for name in EVENTS}
        for event in events:
            if event.user not in visitors:
                visitors[event.user] = visitor_of(event.user, key)
            columns["visitor"].append(visitors[event.user])
            columns["user"].append(event.user)
            columns["item"].append(str(event.item))
            columns["time"].append(event.time)
            columns["kind"].append(event.kind)
            # A store of another package may keep no ids of answers.
            columns["answer_id"].append(getattr(event, "answer_id", None))
        frames.append(pl.DataFrame(columns, schema=EVENTS))
    return pl.concat(frames)


def with_kinds(events: pl.DataFrame, kinds: Collection[str]) -> pl.DataFrame:
    """Keep the events of these kinds; all of them where no kind is named.

    Raises ConfigurationError for a kind that no event has, where there are events.
    """
    known = set(events["kind"].unique())
    for kind in kinds:
        if known and kind not in known:
            names = brief(", ".join(sorted(name or "(without a kind)" for name in known)), 200)
            raise ConfigurationError(f"--kind {kind}: the stored events are of other kinds: {names}")
    return events.filter(pl.col("kind").is_in(list(kinds))) if kinds else events


def distinct(answers: pl.LazyFrame) -> pl.LazyFrame:
    """Drop the answers whose id came before, as of a file that was written twice."""
    return answers.unique("answer_id", keep="first", maintain_order=True)


def attribute(answers: pl.LazyFrame, events: pl.DataFrame, within: int) -> pl.DataFrame:
    """Return the outcomes: one row for each event that an answer led to, with the columns of `_PLACE`.

    An event that names an answer is an outcome of it if the answer has the item, and else of none. An event
    without such a name is an outcome of the newest answer that showed the item to the visitor, if that is at
    most `within` milliseconds before. Each event counts once. `time` is that of the answer.
    """
    events = events.with_row_index("event")
    named = events.filter(pl.col("answer_id").is_not_null()).select("event", "answer_id", "item")
    others = events.filter(pl.col("answer_id").is_null()).select("event", "visitor", "item", asked="time")
    ids, pairs = named.select("answer_id").unique(), others.select("visitor", "item").unique()
    of_named = (
        _shown(answers.join(ids.lazy(), on="answer_id", how="semi"))
        .join(named.lazy(), on=["answer_id", "item"])
        .sort("event", "place")
        .unique("event", keep="first", maintain_order=True)
    )
    shown = _shown(answers.join(pairs.select("visitor").unique().lazy(), on="visitor", how="semi"))
    of_others = (
        others.lazy()
        .sort("asked", "event")
        .join_asof(
            shown.join(pairs.lazy(), on=["visitor", "item"], how="semi").sort("time", "answer_id"),
            left_on="asked",
            right_on="time",
            by=["visitor", "item"],
            strategy="backward",
            tolerance=f"{within}ms",
            coalesce=False,
            check_sortedness=False,
        )
        .filter(pl.col("answer_id").is_not_null())
    )
    return pl.concat([part.select(_PLACE) for part in pl.collect_all([of_named, of_others])])


def _shown(answers: pl.LazyFrame) -> pl.LazyFrame:
    """One row an item of the answers."""
    columns = pl.col("answer_id", "visitor", "version", "route", "time")
    lists = pl.col("places").alias("place"), pl.col("items").alias("item")
    return answers.select(columns, *lists).explode("place", "item").filter(pl.col("item").is_not_null())
