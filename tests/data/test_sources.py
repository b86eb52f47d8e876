"""Logs of several sources: the rows of a web log and of orders are one log."""

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import prepare_as
from turret.data.events.dropped_rows import PrepareReport

START = 1_735_689_600  # 2025-01-01
KINDS = {"view": "signal", "cart": "signal", "purchase": "target", "return": "negative", "ad": "ignored"}
STATES = {"shipped": "purchase", "refunded": "return", "seen": "view", "kept": "cart", "sent": "ad"}
HEADER = "user_id,session_id,item_id,event,time\n"
Row = dict[str, Any]
WEB = {"name": "web", "columns": {"time": "ts", "session": "sid"}}
ORDERS = {
    "name": "orders",
    "columns": {"user": "customer", "session": "visit", "item": "sku", "time": "at", "kind": "state"},
    "kinds": STATES,
}


def messy(seed: int, count: int) -> list[Row]:
    """Rows with repeats, strangers, logins, equal times, ids of two types, and bad rows of each kind."""
    draw = random.Random(seed)
    users, items = draw.choice([("ab", "xyz"), (["1", "2", "30"], ["7", "8", "9"])])
    return [
        {
            "user": draw.choice([*users, *users, None]),
            "session": draw.choice(["s1", "s2", None]),
            "item": draw.choice([*items, *items, *items, None]),
            "kind": draw.choice([*KINDS, "view", "purchase", "purchase", "rent", None]),
            "time": draw.choice([None, -1, *[START + 60 * draw.randrange(400) for _ in range(12)]]),
        }
        for _ in range(count)
    ]


def write_web(path: Path, rows: list[Row]) -> Path:
    """JSON lines with times in milliseconds; ids of digits are numbers."""
    names = {"user": "user_id", "session": "sid", "item": "item_id", "kind": "event"}
    lines = [
        {names[role]: int(row[role]) if (row[role] or "").isdigit() else row[role] for role in names}
        | {"ts": None if row["time"] is None else "never" if row["time"] < 0 else str(1000 * row["time"])}
        for row in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def write_orders(path: Path, rows: list[Row]) -> Path:
    """A CSV in latin-1 with the order number in front, states in place of kinds, and times as dates."""
    states = {kind: state for state, kind in STATES.items()} | {"rent": "lent"}
    lines = ["order;customer;visit;sku;state;at"]
    for number, row in enumerate(rows):
        at = row["time"]
        shown = "" if at is None else "never" if at < 0 else str(pl.from_epoch(pl.Series([at]))[0])
        values = [row["user"], row["session"], row["item"], states.get(row["kind"]), shown]
        lines.append(";".join([f"é{number}", *("" if value is None else value for value in values)]))
    path.write_text("\n".join(lines) + "\n", "latin-1")
    return path


def write_whole(path: Path, rows: list[Row]) -> Path:
    """One CSV of all rows, with times in seconds."""
    lines = [
        ",".join(
            "" if value is None else str(value)
            for value in (row["user"], row["session"], row["item"], row["kind"], row["time"])
        ).replace(",-1", ",never")
        for row in rows
    ]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    return path


def without_source(report: PrepareReport) -> dict[str, int]:
    """The numbers of bad rows by kind, and of removed rows by filter, over all sources."""
    counts: dict[str, int] = {}
    for bad in report.manifest.bad_rows:
        kind = bad.kind.removeprefix("web: ").removeprefix("orders: ")
        counts[kind] = counts.get(kind, 0) + bad.count
    return counts | {removed.filter: removed.events for removed in report.manifest.removed}


@given(
    seed=st.integers(0, 10**6),
    filters=st.sampled_from(
        [
            {"duplicates": "keep"},
            {"duplicates": "strongest"},
            {"duplicates": "strongest", "session_gap": "30m"},
            {"duplicates": "exact", "session_gap": "2h"},
            {"duplicates": "first", "min_user_events": 2, "min_item_events": 2},
            {"duplicates": "last", "max_user_events": 30},
        ]
    ),
)
def test_two_sources_are_the_file_of_their_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, filters: dict[str, Any]
) -> None:
    """Their formats, encodings, names of columns, units of times and values of kinds differ."""
    folder = tmp_path_factory.mktemp("sources")
    rows = messy(seed, 120)
    draw = random.Random(-seed)
    in_web = [draw.random() < 0.6 for _ in rows]
    web = [row for row, is_of_web in zip(rows, in_web, strict=True) if is_of_web]
    orders = [row for row, is_of_web in zip(rows, in_web, strict=True) if not is_of_web]
    write_web(folder / "web.jsonl", web)
    write_orders(folder / "orders.csv", orders)
    write_whole(folder / "whole.csv", [*web, *orders])
    shared = {"kinds": KINDS, "filters": filters, "on_bad": "drop=any"}
    one = prepare_as(folder / "one", source=folder / "whole.csv", columns={"session": "session_id"}, **shared)
    several = prepare_as(
        folder / "several",
        sources=[
            {**WEB, "file": str(folder / "web.jsonl")},
            {**ORDERS, "file": str(folder / "orders.csv"), "format": {"encoding": "latin-1"}},
        ],
        **shared,
    )
    counts = without_source(several)
    # A kind that no table has is left out in a column of kinds, and bad as a state.
    unknown = counts.pop("value without a kind", 0)
    assert unknown == sum(row["kind"] == "rent" for row in orders)
    assert counts | {"kinds": counts.get("kinds", 0) + unknown} == {"kinds": 0} | without_source(one)
    assert several.manifest.fingerprint == one.manifest.fingerprint
    assert several.manifest.split == one.manifest.split
