"""The answers and the stored events of a log as tables of Polars, for the replay of a version."""

from collections.abc import Collection
from typing import Any

import numpy as np
import polars as pl

from turret.data.answers.attribution import Attribution
from turret.data.answers.events import check_kinds, events_of
from turret.data.answers.files import COLUMNS
from turret.data.answers.form import visitor_of
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
    """Keep the events of these kinds; all of them where no kind is named. Raises as `check_kinds`."""
    check_kinds(kinds, set(events["kind"].unique()))
    return events.filter(pl.col("kind").is_in(list(kinds))) if kinds else events


def distinct(answers: pl.LazyFrame) -> pl.LazyFrame:
    """Drop the answers whose id came before, as of a file that was written twice."""
    return answers.unique("answer_id", keep="first", maintain_order=True)


def attribute(answers: pl.DataFrame, events: pl.DataFrame, within: int) -> pl.DataFrame:
    """Return the outcomes as `data.answers.attribution` finds them: `answer_id`, `item` and `place`."""
    columns = (
        events["visitor"].to_list(),
        events["item"].to_list(),
        events["time"].dt.epoch("ms").to_numpy(),
        events["answer_id"].fill_null("").to_list(),
    )
    found = Attribution(events_of(*columns), within)
    table = answers.select(COLUMNS.names).to_arrow().cast(COLUMNS)
    found.add(table, np.zeros(answers.height, np.int64))
    outcomes = events.select("item").with_columns(
        answer_id=pl.Series(found.answers.astype(str), dtype=pl.String), place=pl.Series(found.places)
    )
    return outcomes.filter(pl.col("answer_id") != "")
