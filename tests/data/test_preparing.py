"""Logs become prepared data."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import Prepare, prepare_as
from turret.data.errors import BadRowsError, DataError, EmptyDataError
from turret.data.events.event_arrays import Events
from turret.data.features.columns import Bag
from turret.data.histories.partition import by_time
from turret.data.prepared import ColdItems, PreparedData
from turret.data.preparing.describe import describe
from turret.data.preparing.prepare import new_prepared_folder
from turret.data.preparing.prepare_warnings import repeats_of

HEADER = "user_id,item_id,timestamp\n"


def test_parts_are_read_in_natural_order_and_the_order_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    for number in range(12):
        (folder / f"part.{number}.csv").write_text(f"user_id,item_id\nu,{number}\n")
    report = prepare_as(tmp_path / "prepared", source=folder, columns__in_file_order=True)
    opened = PreparedData.open(report.folder)
    assert opened.item_ids.ids(opened.history(0, "end")) == list(range(12))
    order = f"{folder}: 12 parts by the numbers in their names, part.0.csv to part.11.csv"
    assert order in report.warnings


def test_a_bad_row_is_named_with_its_part(tmp_path: Path) -> None:
    for name, text in {
        "log/1.csv": HEADER + "u,a,5\n",
        "log/2.csv": HEADER + "u,a,6\n,a,7\n1,2\n",
        "items/1.csv": "item_id,price\na,1\n",
        "items/2.csv": "item_id,price\na,2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(BadRowsError) as refusal:
        prepare_as(tmp_path / "prepared", source=tmp_path / "log", items=tmp_path / "items")
    for line in (
        "malformed line: 1\n    file 2.csv, row 4, problem 2 of 3 fields",
        "null user: 1\n    file 2.csv, row 3, user_id null",
        "items file: repeated id: 1\n    file 2.csv, row 2, item_id a",
    ):
        assert line in str(refusal.value)


def test_a_folder_as_the_shop_writes_it_comes_with_features_and_fields(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "events.csv").write_text(HEADER + "u1,i2,978300760\nu1,i1,978300761\nu2,i2,978300762\n")
    (folder / "items.csv").write_text(
        "item_id,title,genres,price\ni1,One,x|y,2.50\ni2,Two,,3\ni3,Unseen,z,1\n"
    )
    (folder / "users.csv").write_text("user_id,country\nu1,nl\n")
    opened = PreparedData.open(prepare_as(tmp_path / "prepared", source=folder).folder)
    assert opened.fields == {"title": ["One", "Two"], "genres": [["x", "y"], []], "price": [2.5, 3.0]}
    assert [(f.name, f.kind) for f in opened.item_features.features] == [
        ("title", "text"),
        ("genres", "multi"),
        ("price", "number"),
    ]
    genres = opened.item_features.columns["genres"]
    assert isinstance(genres, Bag)
    assert genres.row(0).tolist() == [1, 2]
    assert opened.user_features.columns["country"].tolist() == [1, 0]  # type: ignore[union-attr]


def test_overwriting_replaces_prepared_data_and_empty_folders_alone(tmp_path: Path) -> None:
    target, home = tmp_path / "new", tmp_path / "home"
    for folder in (target, home):
        folder.mkdir()
    (home / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="home is not prepared data, so it is not overwritten"):
        new_prepared_folder(home, overwrite=True)
    with pytest.raises(DataError, match="--overwrite"), new_prepared_folder(home, overwrite=False):
        pass
    assert (home / "letter.txt").read_text() == "dear"
    for overwrite in (False, True):
        with new_prepared_folder(target, overwrite) as folder:
            (folder / "manifest.json").write_text(str(overwrite))
    assert (target / "manifest.json").read_text() == "True"


WITH_BAD_ROWS = "user_id,item_id,timestamp\na,x,1\n,x,2\na,q,3\nb,x\n"


@pytest.fixture
def items(tmp_path: Path) -> Path:
    (tmp_path / "catalog.csv").write_text("item_id,title\nx,Ex\ny,Why\nx,Again\n")
    return tmp_path / "catalog.csv"


def test_bad_rows_of_all_files_are_refused_together(prepared: Prepare, items: Path) -> None:
    with pytest.raises(BadRowsError) as refusal:
        prepared(WITH_BAD_ROWS, {"items": items})
    for kind in (
        "malformed line: 1",
        "null user: 1",
        "item not in the items file: 1",
        "items file: repeated id: 1",
    ):
        assert kind in str(refusal.value)


def test_where_no_item_is_known_ids_of_both_files_are_shown(prepared: Prepare, items: Path) -> None:
    with pytest.raises(EmptyDataError, match=r"(?s)item_id X.*the ids of .*catalog.csv are such as 'x', 'y'"):
        prepared(HEADER + "a,X,1\n", {"items": items, "on_bad": "drop"})


def test_dropped_rows_are_counted_in_the_manifest(prepared: Prepare, items: Path) -> None:
    opened = prepared(WITH_BAD_ROWS, {"items": items, "on_bad": "drop=any"})
    assert opened.manifest.counts.events == 1
    assert [bad.count for bad in opened.manifest.bad_rows] == [1, 1, 1, 1]
    assert opened.fields == {"title": ["Ex"]}


MOSTLY_BAD = HEADER + "a,x,1\na,y,2\n,x,3\nb,,4\nb,,5\n"


def test_more_than_half_of_the_rows_are_dropped_on_request_only(prepared: Prepare) -> None:
    with pytest.raises(
        BadRowsError, match=r"3 of 5 rows of (?s:.)*null item: 2(?s:.)*null user: 1"
    ) as refused:
        prepared(MOSTLY_BAD, {"on_bad": "drop"})
    assert "--on-bad drop=any, as they concern more than half of the rows" in str(refused.value)
    said = describe(prepared(MOSTLY_BAD, {"on_bad": "drop=any"}).folder)
    assert said.startswith("dropped: 3 of 5 rows of the log (60.0%): null item (2), null user (1)\n")


def test_rows_of_one_item_are_merged_if_equal_and_else_refused_with_a_way_out(
    prepared: Prepare, tmp_path: Path
) -> None:
    """The rows of a table of properties differ, and the first alone would be kept."""
    text, path = HEADER + "a,x,1\na,y,2\n", tmp_path / "items.csv"
    path.write_text("item_id,stock\nx,1\ny,2\nx,1\n")
    assert prepared(text, {"items": path}).fields == {"stock": [1, 2]}
    path.write_text("item_id,property,value\nx,size,1\nx,stock,2\ny,size,4\ny,tag,5\n")
    with pytest.raises(BadRowsError, match=r"repeated id: 2(?s:.)*one row an id, with a column for each"):
        prepared(text, {"items": path, "on_bad": "drop"})


def test_items_without_an_event_stay_if_they_have_features(tmp_path: Path) -> None:
    items, log = tmp_path / "items.csv", tmp_path / "log.csv"
    items.write_text("item_id,shelf,price\n1,red,2.5\n2,red,-\n3,blue,4\n4,green,6\nx,red,1\n")
    log.write_text(HEADER + "a,1,1\na,3,2\n")
    given: dict[str, object] = {"source": log, "items": items, "fields": ["price"]}
    report = prepare_as(tmp_path / "prepared", **given, item_features__category=["shelf"])
    assert any("2 of 4 items have no event; a model whose" in one for one in report.warnings)
    data = PreparedData.open(report.folder)
    assert data.item_ids.ids(range(len(data.item_ids))) == [1, 3]
    assert data.fields == {"price": [2.5, 4.0]}
    assert data.cold_items() == ColdItems(
        [2, 4], {"shelf": ["red", "green"], "price": [None, 6.0]}, {"price": [None, 6.0]}
    )
    shelf, price = data.item_features.features
    assert (shelf.values, price.mean) == (("blue", "red"), 3.25), "of the items with an event"
    report = prepare_as(tmp_path / "prepared", **given, item_features__ignore=["*"])
    assert any("2 of 4 items have no event and no features" in one for one in report.warnings)
    assert PreparedData.open(report.folder).cold_items() == ColdItems()


Warn = Callable[..., tuple[str, ...]]


@pytest.fixture
def warn(tmp_path: Path) -> Warn:
    """Prepares a CSV text and returns the warnings of the report."""

    def make(text: str, **overrides: object) -> tuple[str, ...]:
        (tmp_path / "events.csv").write_text(text)
        settings = {"source": tmp_path / "events.csv", **overrides}
        return prepare_as(tmp_path / "prepared", **settings).warnings

    return make


def test_a_user_who_may_be_nobody_is_said(warn: Warn) -> None:
    others = "".join(f"{user},a,{user}\n" for user in range(40))
    text = HEADER + others + "".join(f"NA,{item},{item}\n" for item in range(10))
    sentence = warn(text)[1]
    assert sentence.startswith("user 'NA' has 20.0% of the events")
    assert sentence.endswith("leave them out with --null user_id=NA --on-bad drop")
    nulls = {"format__nulls": ["user_id=NA"], "on_bad": "drop"}
    assert not any("stands for" in sentence for sentence in warn(text, **nulls))


@pytest.mark.parametrize(("decimal", "amount"), [(",", "1.299,50"), (".", "1,299.50"), (",", "1299.5")])
def test_a_stated_decimal_mark_is_that_of_weights_and_quantities(
    prepared: Prepare, decimal: str, amount: str
) -> None:
    columns = {"columns.weight": "w", "columns.quantity": "w"}
    data = prepared(f'{HEADER[:-1]},w\n1,a,1,"{amount}"\n', {**columns, "format.decimal": decimal})
    assert data.weights is not None
    assert data.weights.tolist() == [1299.5]


def test_accounts_that_are_too_fast_for_people_are_said_with_the_way_to_leave_them_out(warn: Warn) -> None:
    """One event every 80 seconds all day, or 1,000 events in three days."""
    rows = [
        (name, step, 1_700_000_000 + pace * step)
        for name, pace in (("bot", 80), ("fan", 250))
        for step in range(1_100)
    ]
    rows += [("person", 1, 1_700_000_000)] * 40
    for others, limit, most in ((rows, 1_099, 1_100), ([row for row in rows if row[0] != "fan"], 210, 40)):
        said = warn(HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in others))
        (sentence,) = (one for one in said if "no person" in one)
        assert sentence.startswith(f"{1_100 / len(others):.1%} of the events are of 1 account ('bot') with")
        assert f"--max-user-events {limit} leaves out" in sentence
        assert sentence.endswith(f"the most of another user are {most:,}")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("1,a,7\n1,b,7\n", "all events have one time, so their order is that of the file"),
        ("1,a,7\n2,b,8\n", "the split leaves no event for the test"),
        ("1,a b,7\n2,b c,8\n2,a c,9\n", "nearly all items occur once (3 events have 3)"),
    ],
)
def test_what_an_export_or_a_split_lost_is_said(warn: Warn, rows: str, sentence: str) -> None:
    assert any(one.startswith(sentence) for one in warn(HEADER + rows))


def test_returns_beside_the_named_columns_are_said_with_the_option(warn: Warn) -> None:
    rows = "1,a,7,1,paid\n1,b,8,-1,Refunded\n2,a,8,2,paid\n2,b,9,1,cancelled\n"
    said = warn(HEADER[:-1] + ",Qty,Status\n" + rows)
    assert any("'Qty' is zero or below in 1 row" in one and "--quantity Qty" in one for one in said)
    assert any("'Status' tells of returns" in one and "in 2 rows" in one for one in said)
    assert not any("tells of returns" in one for one in warn(HEADER[:-1] + ",state\n1,a,7,new\n1,b,8,used\n"))


@pytest.mark.parametrize(
    ("column", "values", "option"),
    [
        ("order status", ["paid", "Storno"], "--kind-column 'order status'"),
        ("OrderStatus", ["paid", "voided"], "--kind-column OrderStatus"),
        ("Quantity Ordered", ["1", "-1"], "--quantity 'Quantity Ordered'"),
        ("Menge", ["1", '"-1,5"'], "--quantity Menge"),
        ("Storniert", ["nein", "Ja"], "--kind-column Storniert"),
        *((name, ["False", "True"], f"--kind-column {name}") for name in ("refunded", "is_returned")),
        *((name, ["0", "1"], f"--kind-column {name}") for name in ("returned", "cancelled")),
    ],
)
def test_columns_of_returns_are_known_by_many_names(
    tmp_path: Path, column: str, values: list[str], option: str
) -> None:
    """Also in a packed file."""
    source, (no, yes) = tmp_path / "events.csv.gz", values
    text = f"{HEADER[:-1]},{column}\n1,a,7,{no}\n1,b,8,{yes}\n2,a,8,{no}\n2,b,9,{no}\n"
    source.write_bytes(gzip.compress(text.encode()))
    (doubt,) = prepare_as(tmp_path / "prepared", source=source).doubts
    assert "in 1 row" in doubt
    assert option in doubt


def test_users_whom_their_file_lacks_are_counted(warn: Warn, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user_id,age\nu1,3\n2,4\n")
    sentence = (
        "users.csv: 1 of 2 users of the log are not in it, and have no features; its ids are such as 'u1'"
    )
    assert any(
        one.startswith(sentence) for one in warn(HEADER + "1,a,1\n2,b,2\n", users=tmp_path / "users.csv")
    )


def test_targets_that_can_not_be_hit_are_counted(warn: Warn) -> None:
    """User 1 ends with an item of the first days, user 2 with a new one."""
    text = "user_id,item_id,timestamp\n1,a,1\n1,a,2\n1,b,3\n1,a,4\n2,a,1\n2,b,2\n2,c,3\n"
    *_, sentence = warn(text)
    told = "33.3% of the training events repeat an item of their user, and 1 of 2 test targets were used "
    assert sentence.startswith(told)
    for way_out in ("--set evaluation.exclude_seen=false", "--duplicates first"):
        assert way_out in sentence
    assert len(warn(text, filters__duplicates="first")) == 1


NOON, MINUTE, DAY = 1_700_000_000, 60, 86_400


@pytest.mark.parametrize(
    ("rows", "kind", "shares"),
    [
        # A view, a cart and a purchase in five minutes, and another item on the next day.
        ([("a", 0), ("a", 2 * MINUTE), ("a", 5 * MINUTE), ("b", DAY)], None, (0, 2 / 4)),
        # One visit tells nothing, unless the log has kinds of events.
        ([("a", 0), ("a", 2 * MINUTE), ("a", 5 * MINUTE)], None, (2 / 3, 0)),
        ([("a", 0), ("a", 2 * MINUTE), ("a", 5 * MINUTE)], "kind", (0, 2 / 3)),
    ],
)
def test_repeats_within_a_visit_or_after_the_training_part_are_no_returns(
    prepared: Prepare, rows: list[tuple[str, int]], kind: str | None, shares: tuple[float, float]
) -> None:
    held_out = [("a", 9 * DAY), ("a", 10 * DAY)]
    lines = [f"1,{item},{NOON + time},view\n" for item, time in rows + held_out]
    text = "user_id,item_id,timestamp,kind\n" + "".join(lines)
    manifest = prepared(text, {"columns.kind": kind}).manifest
    assert (manifest.repeat_share, manifest.visit_repeat_share) == pytest.approx(shares)


def test_a_funnel_is_told_from_users_who_come_back(warn: Warn) -> None:
    lines = [f"1,a,{NOON},1\n", f"1,a,{NOON + 300},5\n", f"1,b,{NOON + DAY},1\n", f"1,b,{NOON + DAY},5\n"]
    lines += [f"1,c,{NOON + 2 * DAY},1\n", f"1,a,{NOON + 3 * DAY},1\n"]  # held out
    text = "user_id,item_id,timestamp,w\n" + "".join(lines)
    *_, funnel, targets = warn(text, columns__weight="w")
    assert funnel.startswith("50.0% of the training events repeat an item of the same visit")
    assert targets.startswith(
        "0.0% of the training events repeat an item of an earlier visit of their user, and 1 of 1"
    )
    assert targets.endswith(
        "prepare with --duplicates strongest, which keeps the event of the largest weight"
    )
    strongest = warn(text, columns__weight="w", filters__duplicates="strongest")
    assert not any("repeat" in sentence for sentence in strongest)


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=40),
    validation_from=st.integers(0, 7),
)
def test_repeats_are_those_of_a_naive_reading(rows: list[tuple[int, int, int]], validation_from: int) -> None:
    """Three hours without an event of the user end a visit, if the times are hours."""
    users, items, times = np.array(rows, dtype=np.int32).reshape(-1, 3).T
    events = Events(users=users, items=items, times=times).take(np.lexsort((times, users)))
    splits = by_time(events.times, np.searchsorted(events.users, np.arange(5)), validation_from, 7)
    used = {(user, item) for user, item, time in rows if time < 7}
    targets = {(user, item) for user, item, time in rows if time >= 7}
    visits: dict[tuple[int, int], int] = {}
    for user in range(4):
        visit, before = 0, None
        for time in sorted(time for one, _, time in rows if one == user):
            visit += before is not None and time - before >= 3
            visits[user, time], before = visit, time
    trained = [row for row in rows if row[2] < validation_from]
    pairs = {(user, item) for user, item, _ in trained}
    visited = {(user, item, visits[user, time]) for user, item, time in trained}
    later = sum(visits[user, time] > 0 for user, _, time in trained)
    of_training = (len(trained), len(pairs), len(visited), later)
    assert repeats_of(events, splits, 3) == (*of_training, len(targets), len(used & targets))


def test_the_time_of_the_items_file_is_kept(tmp_path: Path) -> None:
    """From it on, changes of items in a service are newer than a version."""
    (tmp_path / "log.csv").write_text("user_id,item_id\na,1\na,2\nb,1\n")
    (tmp_path / "items.csv").write_text("item_id,title\n1,One\n2,Two\n")
    os.utime(tmp_path / "items.csv", (1_700_000_000, 1_700_000_000))
    given: dict[str, object] = {"source": tmp_path / "log.csv", "columns__in_file_order": True}
    assert prepare_as(tmp_path / "prepared", **given).manifest.catalog_time is None
    report = prepare_as(tmp_path / "prepared", **given, items=tmp_path / "items.csv")
    assert report.manifest.catalog_time == "2023-11-14T22:13:20.000+00:00"
