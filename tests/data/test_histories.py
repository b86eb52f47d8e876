"""Histories: sorted, filtered, written block by block, and split into parts."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.conftest import Prepare, prepare_as
from turret.data.configuration import Duplicates
from turret.data.errors import EmptyDataError
from turret.data.histories.partition import time_cuts
from turret.data.prepared import PARTS, PreparedData
from turret.tower.config import ScoringConfig
from turret.tower.counted_kinds import CountedKinds
from turret.tower.format.manifest import ModelCard

Row = tuple[int, str, int]
KINDS = ["view", "cart", "buy", "give"]
ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("abcd"), st.integers(0, 4)), min_size=1, max_size=40
)


def _distinct(rows: list[Row], policy: str) -> list[Row]:
    """The rows, in order of time, that a policy of duplicates leaves."""
    if policy == "keep":
        return rows
    if policy == "last":
        return _distinct(rows[::-1], "first")[::-1]
    found: dict[object, Row] = {}
    for row in rows:
        found.setdefault(row if policy == "exact" else row[:2], row)
    return [*found.values()]


def _core(rows: list[Row], users: int, items: int) -> list[Row]:
    """The rows that repeated dropping of users and items leaves."""
    while True:
        per_user, per_item = Counter(u for u, _, _ in rows), Counter(i for _, i, _ in rows)
        kept = [row for row in rows if per_user[row[0]] >= users and per_item[row[1]] >= items]
        if len(kept) == len(rows):
            return kept
        rows = kept


@pytest.mark.parametrize("policy", ["keep", "exact", "first", "last"])
@settings(max_examples=10)  # each prepares a log
@given(rows=ROWS, minima=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_prepared_histories_are_those_of_a_naive_reading(
    prepared: Prepare, rows: list[Row], policy: str, minima: tuple[int, int]
) -> None:
    """Sorted, without duplicates, then without rare users and items; the last two events are held out."""
    text = "user_id,item_id,timestamp\n" + "".join(f"{user},{item},{time}\n" for user, item, time in rows)
    names = ("filters.min_user_events", "filters.min_item_events")
    filters = {"filters.duplicates": policy, **dict(zip(names, minima, strict=True))}
    kept = _core(_distinct(sorted(rows, key=lambda row: (row[0], row[2])), policy), *minima)
    if not kept:
        with pytest.raises(EmptyDataError):
            prepared(text, filters)
        return
    opened = prepared(text, filters)
    expected = {}
    for user in sorted({row[0] for row in kept}):
        items = [item for one, item, _ in kept if one == user]
        expected[user] = [items[:-2], items[-2:-1], items[-1:]] if len(items) > 2 else [items, [], []]
    found = {
        opened.users.id(user): [opened.item_ids.ids(opened.targets(user, part)) for part in PARTS]
        for user in range(len(opened.users))
    }
    assert found == expected
    assert opened.item_ids.ids(range(len(opened.item_ids))) == sorted({item for _, item, _ in kept})


@pytest.mark.parametrize(
    ("policy", "gap"),
    [(one, None) for one in ("exact", "first", "last", "strongest")] + [("strongest", "2s")],
)
@settings(max_examples=10)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.sampled_from(KINDS)), max_size=20)
)
def test_answers_merge_a_history_as_preparation_does(
    prepared: Prepare, rows: list[tuple[str, int, str]], policy: Duplicates, gap: str | None
) -> None:
    """In the order of the log, where times are equal, and with the weights of the kinds."""
    start, table = 1_700_000_000, ["view=signal", "cart=signal:2", "buy", "give=target:.5"]
    rows = sorted([*rows, *((f"{kind}ed", 0, kind) for kind in KINDS)], key=lambda row: row[1])
    text = "user,item,time,kind\n" + "".join(f"u,{item},{start + time},{kind}\n" for item, time, kind in rows)
    given = {"filters.duplicates": policy, "filters.session_gap": gap}
    opened = prepared(text, {"columns.kind": "kind", "kinds": table, **given})
    card = ModelCard(
        version="v1",
        scoring=ScoringConfig(),
        history_length=5,
        kinds=opened.manifest.kinds,
        duplicates=policy,
        session_gap=gap,
    )
    items, kinds = [row[0] for row in rows], [row[2] for row in rows]
    milliseconds = [1_000 * (start + time) for _, time, _ in rows]
    counted = CountedKinds(card).count(items, kinds, milliseconds, milliseconds[-1])
    found = [(items[place], milliseconds[place]) for place in np.flatnonzero(counted.are_read)]
    assert found == list(zip(opened.item_ids.ids(opened.event_items), opened.times.tolist(), strict=True))
    assert opened.kinds is not None
    assert counted.codes[counted.are_read].tolist() == opened.kinds.tolist()


def test_users_with_more_events_than_people_have_are_left_out_and_counted(prepared: Prepare) -> None:
    text = "user_id,item_id,timestamp\na,x,1\na,y,2\na,x,3\nb,x,1\nb,y,1\nc,z,1\n"
    opened = prepared(text, {"filters.max_user_events": 2})
    assert opened.users.ids(range(len(opened.users))) == ["b", "c"]
    assert opened.item_ids.ids(opened.event_items.tolist()) == ["x", "y", "z"]
    assert [(one.filter, one.events) for one in opened.manifest.removed] == [("max_user_events = 2", 3)]


SIX = "user,item,time\na,0,10\na,1,20\na,2,30\na,3,40\nb,4,15\nb,5,35\n"
MOMENTS = {"split.validation_from": 20, "split.test_from": 35}
FRACTIONS = {"split.validation_fraction": 0.3, "split.test_fraction": 0.3}


@pytest.mark.parametrize(
    ("kind", "settings", "splits"),
    [
        ("last", {}, [[2, 3], [6, 6]]),
        ("time", MOMENTS, [[1, 3], [5, 5]]),
        ("time", FRACTIONS, [[1, 3], [5, 5]]),
        ("files", {"split.validation_fraction": 0}, [[2, 2], [5, 5]]),
        ("files", {"split.validation_fraction": 0.5}, [[1, 2], [5, 5]]),
    ],
)
def test_users_are_divided_one_by_one_and_counted_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, object], splits: object
) -> None:
    """Without a validation file, the tail of each user's train events, rounded down, stands in for it."""
    monkeypatch.setattr("turret.data.events.event_arrays.PIECE", 1)
    header, *rows = SIX.splitlines(keepends=True)
    for name, part in {"events": rows, "train": [*rows[:2], rows[4]], "test": [*rows[2:4], rows[5]]}.items():
        (tmp_path / f"{name}.csv").write_text(header + "".join(part))
    source: dict[str, object] = {"source": tmp_path / "events.csv"}
    if kind == "files":
        source = {f"split.{name}": tmp_path / f"{name}.csv" for name in ("train", "test")}
    report = prepare_as(tmp_path / "prepared", **source, **settings, **{"split.kind": kind})
    found = PreparedData.open(report.folder).splits
    assert found.tolist() == splits
    edges = np.column_stack([[0, 4], found, [4, 6]])
    summary = report.manifest.split
    assert [*summary.events.values()] == np.diff(edges).sum(axis=0).tolist()
    assert [*summary.users.values()] == (np.diff(edges) > 0).sum(axis=0).tolist()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.floats(0.05, 0.4), st.floats(0.05, 0.4))
def test_the_cuts_leave_at_least_the_fractions(times: list[int], validation: float, test: float) -> None:
    first, second = time_cuts(np.array(times), validation, test)
    assert first <= second
    assert sum(t >= second for t in times) >= test * len(times) - 1e-9
    assert sum(t >= first for t in times) >= (validation + test) * len(times) - 1e-9
    # One moment later would be too few: nothing more is held out than the ties ask for.
    assert sum(t > second for t in times) <= test * len(times) + 1
