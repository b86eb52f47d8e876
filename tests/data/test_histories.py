"""Histories: filtered, written block by block, and split into parts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import EmptyDataError
from turret.data.events.event_arrays import Events
from turret.data.histories.histories import Histories, distinct_events, k_core, write_histories
from turret.data.histories.partition import by_time, last_out, time_cuts
from turret.data.prepared import PreparedData
from turret.data.vocabulary import Vocabulary

EVENTS = "user_id,item_id,timestamp\na,x,1\na,y,2\na,x,3\nb,x,1\nb,y,1\nc,z,1\n"


def test_users_and_items_without_events_left_are_gone_and_the_rest_numbered_anew(prepared: Prepare) -> None:
    opened = prepared(EVENTS, {"filters.min_item_events": 2, "filters.min_user_events": 2})
    assert opened.users.ids(range(len(opened.users))) == ["a", "b"]
    assert opened.item_ids.ids(range(len(opened.item_ids))) == ["x", "y"]
    assert opened.manifest.removed[0].events == 1
    assert opened.event_items.tolist() == [0, 1, 0, 0, 1]


def test_users_with_more_events_than_people_have_are_left_out_and_counted(prepared: Prepare) -> None:
    opened = prepared(EVENTS, {"filters.max_user_events": 2})
    assert opened.users.ids(range(len(opened.users))) == ["b", "c"]
    assert opened.item_ids.ids(opened.event_items.tolist()) == ["x", "y", "z"]
    assert [(one.filter, one.events) for one in opened.manifest.removed] == [("max_user_events = 2", 3)]
    text = "user_id,item_id,timestamp\na,x,1\na,x,2\nb,x,1\nb,x,2\n"
    with pytest.raises(EmptyDataError, match="the filter max_user_events = 1 leaves none of 4 events"):
        prepared(text, {"filters.max_user_events": 1, "filters.duplicates": "last"})


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), max_size=40)
Row = tuple[int, int, int]


def _events(rows: list[Row]) -> Events:
    users, items, times = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Events(users.astype(np.int32), items.astype(np.int32), times).sorted()


@contextmanager
def _histories(events: Events, piece: int = 5) -> Iterator[Histories]:
    """Histories of the events, read a few users at a time."""
    users, items = np.unique(events.users), np.unique(events.items)
    rows = [np.searchsorted(ids, np.arange(10)).astype(np.int32) for ids in (users, items)]
    columns = {"items": np.int32, "times": np.int64}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("turret.data.histories.histories.PIECE", piece)
        found = write_histories([events.renumbered(*rows)], Path(folder), columns, len(users))
        yield replace(found, items=Vocabulary(items.tolist()))


def _core(events: Events, min_user_events: int, min_item_events: int) -> list[Row]:
    """The events between kept users and items."""
    users, items = np.unique(events.users), np.unique(events.items)
    with _histories(events) as histories:
        core = k_core(histories, min_user_events, min_item_events)
    kept_users, kept_items = set(users[core[0]].tolist()), set(items[core[1]].tolist())
    return [row for row in _rows(events) if row[0] in kept_users and row[1] in kept_items]


def _rows(events: Events) -> list[Row]:
    return list(zip(events.users.tolist(), events.items.tolist(), events.times.tolist(), strict=True))


@given(ROWS)
def test_first_and_last_keep_the_oldest_and_the_newest_of_user_and_item(rows: list[Row]) -> None:
    events = _events(rows)
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for place, (user, item, _) in enumerate(_rows(events)):
        first.setdefault((user, item), place)
        last[user, item] = place
    assert np.flatnonzero(distinct_events(events, "first")).tolist() == sorted(first.values())
    assert np.flatnonzero(distinct_events(events, "last")).tolist() == sorted(last.values())


def test_strongest_keeps_the_newest_event_of_the_largest_weight() -> None:
    rows = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 4), (0, 1, 5), (1, 0, 1)]
    events = replace(_events(rows), weights=np.array([1, 5, 3, 2, 2, 9], dtype=np.float32))
    assert np.flatnonzero(distinct_events(events, "strongest")).tolist() == [1, 4, 5]


@given(ROWS)
def test_exact_keeps_one_of_each_user_item_and_time(rows: list[Row]) -> None:
    events = _events(rows)
    kept = _rows(events.take(distinct_events(events, "exact")))
    assert len(kept) == len(set(kept))
    assert set(kept) == set(rows)


def _naive_core(rows: list[Row], users: int, items: int) -> list[Row]:
    while True:
        per_user, per_item = Counter(u for u, _, _ in rows), Counter(i for _, i, _ in rows)
        kept = [row for row in rows if per_user[row[0]] >= users and per_item[row[1]] >= items]
        if len(kept) == len(rows):
            return kept
        rows = kept


@given(ROWS.filter(len), st.integers(1, 4), st.integers(1, 4))
def test_the_core_is_what_repeated_dropping_leaves(rows: list[Row], users: int, items: int) -> None:
    events = _events(rows)
    assert _core(events, users, items) == _naive_core(_rows(events), users, items)


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
    monkeypatch.setattr("turret.data.histories.histories.PIECE", 1)
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


HISTORIES = st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=6)


def _pack(histories: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    flat = [value for history in histories for value in sorted(history)]
    return np.array(flat, dtype=np.int64), np.cumsum([0, *map(len, histories)])


def _cut(histories: list[list[int]], offsets: np.ndarray, splits: np.ndarray) -> list[list[list[int]]]:
    flat = [value for history in histories for value in sorted(history)]
    edges = [[offsets[u], *splits[u], offsets[u + 1]] for u in range(len(histories))]
    return [[flat[a:b] for a, b in pairwise(user)] for user in edges]


@given(HISTORIES)
def test_last_out_leaves_one_event_each_to_those_who_have_three(histories: list[list[int]]) -> None:
    _, offsets = _pack(histories)
    for history, parts in zip(histories, _cut(histories, offsets, last_out(offsets)), strict=True):
        times = sorted(history)
        expected = [times[:-2], times[-2:-1], times[-1:]] if len(times) >= 3 else [times, [], []]
        assert parts == expected


@given(HISTORIES, st.integers(0, 10), st.integers(0, 3))
def test_a_split_by_time_cuts_everybody_at_the_same_moments(
    histories: list[list[int]], start: int, more: int
) -> None:
    times, offsets = _pack(histories)
    splits = by_time(times, offsets, start, start + more)
    for history, parts in zip(histories, _cut(histories, offsets, splits), strict=True):
        assert parts[0] == sorted(t for t in history if t < start)
        assert parts[1] == sorted(t for t in history if start <= t < start + more)
        assert parts[2] == sorted(t for t in history if t >= start + more)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.floats(0.05, 0.4), st.floats(0.05, 0.4))
def test_the_cuts_leave_at_least_the_fractions(times: list[int], validation: float, test: float) -> None:
    first, second = time_cuts(np.array(times), validation, test)
    assert first <= second
    assert sum(t >= second for t in times) >= test * len(times) - 1e-9
    assert sum(t >= first for t in times) >= (validation + test) * len(times) - 1e-9
    # One moment later would be too few: nothing more is held out than the ties ask for.
    assert sum(t > second for t in times) <= test * len(times) + 1
