"""Labels and given negatives of a log, through `prepare`, and beside which event they are placed."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import BadRowsError, ColumnError
from turret.data.events.event_arrays import Events
from turret.data.histories.negatives import placed
from turret.data.prepared import PreparedData
from turret.data.preparing.describe import describe

Given = list[tuple[int | str, list[int | str]]]

LABELLED = """user,item,time,label
a,x,1,1
a,y,2,0
a,z,2,1
a,w,2,0
a,q,3,0
a,x,4,1
a,y,9,0
b,y,1,0
"""
BY_LABEL = {"columns.label": "label"}
IN_ROWS = {"columns.negatives": "wrong", "columns.in_file_order": True}


def given_by_event(data: PreparedData) -> Given:
    """The item of each event, and its negatives."""
    negatives = data.negatives
    assert negatives is not None
    ids = data.item_ids.ids
    return [
        (ids([row])[0], ids(negatives.items[first:last]))
        for row, first, last in zip(
            data.event_items, negatives.offsets[:-1], negatives.offsets[1:], strict=True
        )
    ]


@pytest.mark.parametrize("negative", ["0", "-1", "0.0", "-1.0", "False"])
def test_rows_with_the_other_label_are_negatives_of_the_next_event(prepared: Prepare, negative: str) -> None:
    """Of one at the same time before that; they are read by no history, and counted where they have none."""
    opened = prepared(LABELLED.replace(",0\n", f",{negative}\n"), BY_LABEL)
    assert given_by_event(opened) == [("x", []), ("z", ["y", "w"]), ("x", ["q"])]
    assert opened.item_ids.ids(opened.history(0, "end")) == ["x", "z", "x"]
    assert opened.users.ids(range(len(opened.users))) == ["a"]
    assert {r.filter: r.events for r in opened.manifest.removed} == {
        "users without an event": 1,
        "negatives after the last event": 1,
    }
    assert opened.manifest.negatives == 3
    assert "3, with 3 given negatives" in describe(opened.folder)


def test_negatives_of_events_at_one_time_stay_with_their_own(prepared: Prepare) -> None:
    text = "user,item,time,wrong\na,x,1,p\na,y,1,q\na,z,1,\na,w,1,r|p\n"
    assert given_by_event(prepared(text, {"columns.negatives": "wrong"})) == [
        ("x", ["p"]),
        ("y", ["q"]),
        ("z", []),
        ("w", ["r", "p"]),
    ]


def test_lists_of_integers_are_negatives(prepared: Prepare) -> None:
    """An empty list and a missing one are none."""
    wrong = pl.Series([[7, 8], None, []], dtype=pl.List(pl.Int32))
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": [1, 2, 3], "wrong": wrong})
    by_column: dict[str, object] = {"columns.negatives": "wrong"}
    assert given_by_event(prepared(frame, by_column)) == [(1, [7, 8]), (2, []), (3, [])]
    with pytest.raises(ColumnError, match=r"'wrong' holds Boolean, and the items of column 'item' are Int64"):
        prepared(frame.with_columns(wrong=pl.lit(True)), by_column)


def test_repeated_triples_become_one_event_with_all_their_negatives(prepared: Prepare) -> None:
    text = "user,item,wrong\na,x,y\na,x,z\na,y,x\n"
    opened = prepared(text, {**IN_ROWS, "filters.duplicates": "last"})
    assert given_by_event(opened) == [("x", ["y", "z"]), ("y", ["x"])]


def test_negatives_have_the_weights_of_their_rows(prepared: Prepare) -> None:
    text = "user,item,time,label,w\na,x,1,1,2\na,y,2,0,3\na,z,2,1,4\n"
    opened = prepared(text, {**BY_LABEL, "columns.weight": "w"})
    assert opened.negatives is not None
    assert opened.weights is not None
    assert opened.negatives.weights is not None
    assert (opened.weights.tolist(), opened.negatives.weights.tolist()) == ([2.0, 4.0], [3.0])


@pytest.mark.parametrize(
    ("text", "settings", "sentence"),
    [
        ("a,x,1,2\na,y,2,1\na,z,2,0\n", BY_LABEL, "label other than 0 and 1, or -1 and 1: 1"),
        ("a,x,1,\na,y,2,1\na,z,2,0\n", BY_LABEL, "row 2, user a, item x, time 1, label"),
        ("a,x,1,x\n", {"columns.negatives": "label"}, "negative equal to its positive: 1"),
    ],
)
def test_rows_that_say_nothing_are_bad_rows(
    prepared: Prepare, text: str, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadRowsError, match=sentence):
        prepared("user,item,time,label\n" + text, settings)


def test_a_negative_that_is_no_item_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("user,item,time,wrong\na,x,1,y\na,y,2,nothing|x\n")
    (tmp_path / "items.csv").write_text("item_id,title\nx,One\ny,Two\n")
    with pytest.raises(BadRowsError, match=r"items file: 1\n.*row 3, user a, item nothing"):
        prepare_as(tmp_path / "prepared", source=tmp_path, columns__negatives="wrong")


# Negatives are placed beside the event in whose place they were offered.

Row = tuple[int, int, int, int, int]  # user, item, time, part, label
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.integers(0, 1), st.integers(0, 1)),
    max_size=30,
).filter(lambda rows: any(row[4] for row in rows))  # users without an event are dropped before


def _event_of(rows: list[Row], place: int) -> int | None:
    """The place of the event that the negative at `place` belongs to."""
    user, _, time, part, _ = rows[place]
    same = [n for n, row in enumerate(rows) if row[4] == 1 and (row[0], row[3]) == (user, part)]
    following, before = [n for n in same if n > place], [n for n in same if n < place]
    if following and rows[following[0]][2] == time:
        return following[0]
    if before and rows[before[-1]][2] == time:
        return before[-1]
    return following[0] if following else None


@given(ROWS)
def test_a_negative_belongs_to_the_next_event_or_to_one_at_the_same_time(rows: list[Row]) -> None:
    """As a loop over the rows finds them; others are counted."""
    rows = sorted(rows, key=lambda row: (row[0], row[3], row[2]))
    users, items, times, parts, labels = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    narrow = (parts.astype(np.int8), labels.astype(np.int8))
    found, negatives_found, positions, loose, equal = placed(
        Events(users.astype(np.int32), items.astype(np.int32), times, None, *narrow)
    )
    events = [n for n, row in enumerate(rows) if row[4] == 1]
    negatives = [(n, _event_of(rows, n)) for n, row in enumerate(rows) if row[4] == 0]
    kept = [(event, n) for n, event in negatives if event is not None and rows[event][1] != rows[n][1]]
    expected = sorted((events.index(event), n) for event, n in kept)
    assert positions.tolist() == [event for event, _ in expected]
    assert negatives_found.items.tolist() == [rows[n][1] for _, n in expected]
    assert found.items.tolist() == [rows[n][1] for n in events]
    after = sum(event is None for _, event in negatives)
    assert (len(loose), equal) == (len(negatives) - len(kept), len(negatives) - len(kept) - after)
