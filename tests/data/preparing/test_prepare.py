import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turret.data.configuration import load_configuration
from turret.data.errors import BadRowsError, ColumnError, DataError
from turret.data.events.event_files import EventFiles
from turret.data.features import Bag
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import new_prepared_folder, prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.vocabulary import Id

Prepare = Callable[..., PreparedData]
Row = tuple[int, str, int]

HEADER = "user_id,item_id,timestamp\n"
ROWS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from("abcde"), st.integers(0, 9)), min_size=1, max_size=25
)


def _config(**overrides: object) -> PrepareConfig:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_configuration(PrepareConfig, overrides=named)


def _histories(opened: PreparedData) -> dict[Id, list[list[Id]]]:
    """All parts of all users as ids."""
    return {
        opened.users.id(user): [
            opened.item_ids.ids(opened.targets(user, part)) for part in ("train", "validation", "test")
        ]
        for user in range(len(opened.users))
    }


def _naive(rows: list[Row]) -> dict[Id, list[list[Id]]]:
    """State the last-out split with dictionaries and lists."""
    by_user: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for place, (user, item, time) in enumerate(rows):
        by_user[user].append((time, place, item))
    expected: dict[Id, list[list[Id]]] = {}
    for user, events in sorted(by_user.items()):
        items: list[Id] = [item for _, _, item in sorted(events)]
        expected[user] = [items[:-2], items[-2:-1], items[-1:]] if len(items) > 2 else [items, [], []]
    return expected


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_prepared_histories_are_those_of_a_naive_reading(prepared: Prepare, rows: list[Row]) -> None:
    opened = prepared(HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    assert _histories(opened) == _naive(rows)


def _files(tmp_path: Path) -> dict[str, Path]:
    """The same three users and items as CSV, Parquet and JSON lines."""
    frame = pl.DataFrame({"user_id": ["a", "b", "a"], "item_id": [7, 8, 8], "timestamp": [2, 1, 1]})
    paths = {ending: tmp_path / f"e.{ending}" for ending in ("csv", "parquet", "jsonl")}
    frame.write_csv(paths["csv"])
    frame.write_parquet(paths["parquet"])
    frame.write_ndjson(paths["jsonl"])
    return paths


def test_the_same_events_have_the_same_fingerprint_in_every_format(tmp_path: Path) -> None:
    prints = {
        prepare(_config(source=path), tmp_path / ending).manifest.fingerprint
        for ending, path in _files(tmp_path).items()
    }
    again = prepare(_config(source=tmp_path / "e.csv"), tmp_path / "again").manifest.fingerprint
    assert prints == {again}


@pytest.mark.parametrize(
    "overrides",
    [
        {"columns__in_file_order": True},
        {"columns__time_unit": "seconds"},
        {"columns__weight": "timestamp"},
        {"filters__duplicates": "first"},
        {"filters__min_item_events": 2},
        {"split__kind": "time", "split__test_fraction": 0.3},
    ],
)
def test_every_setting_that_changes_the_data_changes_the_fingerprint(
    tmp_path: Path, overrides: dict[str, object]
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(HEADER + "1,1,9\n1,2,8\n1,1,7\n2,1,6\n3,3,5\n")
    plain = prepare(_config(source=path), tmp_path / "plain").manifest.fingerprint
    assert prepare(_config(source=path, **overrides), tmp_path / "changed").manifest.fingerprint != plain


def test_given_parts_stay_parts_and_come_back(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("user_id,item_id\n2,a\n1,b\n2,b\n")
    (tmp_path / "valid.csv").write_text("user_id,item_id\n2,c\n")
    (tmp_path / "test.csv").write_text("user_id,item_id\n1,a\n3,d\n")
    parts = {f"split__{name}": tmp_path / f"{name}.csv" for name in ("train", "test")}
    config = _config(
        split__kind="files", **parts, split__validation=tmp_path / "valid.csv", columns__in_file_order=True
    )
    opened = PreparedData.open(prepare(config, tmp_path / "prepared").folder)
    assert _histories(opened) == {
        1: [["b"], [], ["a"]],
        2: [["a", "b"], ["c"], []],
        3: [[], [], ["d"]],
    }


def test_a_folder_as_the_shop_writes_it_comes_with_features_and_fields(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "events.csv").write_text(HEADER + "u1,i2,978300760\nu1,i1,978300761\nu2,i2,978300762\n")
    (folder / "items.csv").write_text(
        "item_id,title,genres,price\ni1,One,x|y,2.50\ni2,Two,,3\ni3,Unseen,z,1\n"
    )
    (folder / "users.csv").write_text("user_id,country\nu1,nl\n")
    opened = PreparedData.open(prepare(_config(source=folder), tmp_path / "prepared").folder)
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


def test_features_that_are_named_replace_those_that_are_guessed(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(HEADER + "1,1,1\n")
    (tmp_path / "items.csv").write_text("item_id,title,colour\n1,One,red\n")
    config = _config(source=tmp_path, item_features__category=["colour"], fields=["colour"])
    opened = PreparedData.open(prepare(config, tmp_path / "prepared").folder)
    assert [feature.name for feature in opened.item_features.features] == ["colour"]
    assert opened.fields == {"colour": ["red"]}


def test_columns_of_usual_names_without_texts_are_not_guessed_to_be_features(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(HEADER + "1,1,1\n")
    frame = pl.DataFrame({"item_id": [1], "title": ["One"], "tags": [{"a": 1}], "category": [b"x"]})
    frame.write_parquet(tmp_path / "items.parquet")
    opened = PreparedData.open(prepare(_config(source=tmp_path), tmp_path / "prepared").folder)
    assert [feature.name for feature in opened.item_features.features] == ["title"]
    assert opened.fields == {"title": ["One"]}


def test_quantities_tell_returns_and_weigh_nothing(prepared: Prepare) -> None:
    """A bulk order is one event like any other: quantities are not weights."""
    lines = "user_id,item_id,quantity,timestamp\n1,a,80995,5\n1,a,-2,6\n,a,1,7\n1,b,x,8\n1,b,3,9\n"
    with pytest.raises(BadRowsError, match=r"return \(quantity not above 0\): 1"):
        prepared(lines, {"columns.quantity": "quantity"})
    opened = prepared(lines, {"columns.quantity": "quantity", "on_bad": "drop"})
    assert opened.weights is None
    assert {bad.kind: bad.count for bad in opened.manifest.bad_rows} == {
        "null user": 1,
        "null or unreadable quantity": 1,
        "return (quantity not above 0)": 1,
    }


def test_returns_and_anonymous_lines_are_counted_and_dropped(prepared: Prepare) -> None:
    lines = "user_id,item_id,quantity,timestamp\n1,a,2,5\n1,a,-2,6\n,a,1,7\n1,b,3,8\n"
    with pytest.raises(BadRowsError, match="weight not above 0: 1"):
        prepared(lines, {"columns.weight": "quantity"})
    opened = prepared(lines, {"columns.weight": "quantity", "on_bad": "drop"})
    assert opened.weights is not None
    assert opened.weights.tolist() == [2, 3]
    assert {bad.kind: bad.count for bad in opened.manifest.bad_rows} == {
        "null user": 1,
        "weight not above 0": 1,
    }


def test_texts_for_no_value_are_bad_rows_unless_they_are_said_to_be_ids(prepared: Prepare) -> None:
    lines = "user_id,item_id,timestamp\n1,a,5\nNULL,a,6\n1,-,7\nnan,b,8\n1,b,9\n"
    with pytest.raises(BadRowsError, match=r"null item: 1\n.*\n  null user: 2\n    row 3, user_id NULL"):
        prepared(lines)
    opened = prepared(lines, {"format.nulls": ["-"], "on_bad": "drop"})
    assert opened.manifest.counts.users == 3


def test_a_header_that_names_a_column_twice_is_refused_where_the_column_is_needed(prepared: Prepare) -> None:
    opened = prepared("user_id,item_id,timestamp,note,note\n1,a,5,x,y\n")
    assert opened.manifest.counts.events == 1
    both = r"'item_id' more than once; .*'item_id \(column 2\)' or 'item_id \(column 4\)'"
    choices: tuple[dict[str, Any], ...] = ({}, {"columns.item": "item_id"})
    for chosen in choices:
        with pytest.raises(ColumnError, match=both):
            prepared("user_id,item_id,timestamp,item_id\n1,a,5,b\n", chosen)


def test_nothing_is_left_behind_by_what_fails(prepared: Prepare, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        prepared("user_id,item_id,timestamp\n1,2,later\n")
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


def test_an_existing_target_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text(HEADER + "1,1,1\n")
    before = prepare(_config(source=path), tmp_path / "out").manifest
    path.write_text(HEADER + "1,1,1\n1,2,2\n")
    with pytest.raises(DataError, match="--overwrite"):
        prepare(_config(source=path), tmp_path / "out")
    assert PreparedData.open(tmp_path / "out").manifest == before
    assert prepare(_config(source=path), tmp_path / "out", overwrite=True).manifest.counts.events == 2


def test_the_report_says_how_times_were_read(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text(HEADER + "1,1,978300760\n")
    report = prepare(_config(source=path), tmp_path / "out")
    assert report.warnings == ("time: 'timestamp' holds seconds since 1970",)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["time"]["first"] == 978300760000


def test_no_more_than_some_pieces_of_the_log_are_ever_held(
    prepared: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the source nor of the temporary files."""
    collected: list[int] = []
    collect, collect_batches, read = pl.LazyFrame.collect, pl.LazyFrame.collect_batches, EventFiles.read

    def watched(frame: pl.LazyFrame, **options: Any) -> Any:
        assert options == {"engine": "streaming"}
        found = collect(frame, engine="streaming")
        collected.append(found.height)
        return found

    def watched_batches(frame: pl.LazyFrame, **options: Any) -> Any:
        for found in collect_batches(frame, **options):
            collected.append(found.height)
            yield found

    def watched_read(files: EventFiles, first: int, last: int, *names: str) -> Any:
        collected.append((last - first) // (8 if names else 1))
        return read(files, first, last, *names)

    for module in ("events.read_events", "events.buckets", "histories.histories"):
        monkeypatch.setattr(f"turret.data.{module}.PIECE", 2_500)
    monkeypatch.setattr(pl.LazyFrame, "collect", watched)
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", watched_batches)
    monkeypatch.setattr(EventFiles, "read", watched_read)
    lines = (f"user {row % 97},item {row % 89},2020-01-01 {row % 24:02}:30,text\n" for row in range(30_000))
    prepared("user_id,item_id,timestamp,note\n" + "".join(lines))
    assert sum(height == 2_500 for height in collected) >= 20
    # The times are told from a sample of the log, whose size does not depend on it.
    assert sorted(height for height in collected if height > 2_500) == [10_000]


def test_all_that_is_unfinished_lies_in_one_hidden_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt at any time leaves no files."""
    seen: list[tuple[list[Path], Path]] = []

    def interrupted(_: PrepareConfig, work: Path, *others: object) -> None:
        seen.append((list((tmp_path / "there").iterdir()), work))
        raise KeyboardInterrupt

    monkeypatch.setattr("turret.data.preparing.prepare.ingest_source", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(_config(source=tmp_path / "events.csv"), tmp_path / "there" / "prepared")
    (([unfinished], work),) = seen
    assert unfinished.name.startswith(".prepared")
    assert work.parent == unfinished
    assert list((tmp_path / "there").iterdir()) == []


def test_overwriting_spares_what_is_not_prepared_data(tmp_path: Path) -> None:
    target = tmp_path / "home"
    target.mkdir()
    (target / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="home is not prepared data, so it is not overwritten"):
        new_prepared_folder(target, overwrite=True)
    with pytest.raises(DataError, match="--overwrite"), new_prepared_folder(target, overwrite=False):
        pass
    assert (target / "letter.txt").read_text() == "dear"


def test_an_empty_folder_and_older_prepared_data_are_replaced(tmp_path: Path) -> None:
    target = tmp_path / "new"
    target.mkdir()
    with new_prepared_folder(target, overwrite=False) as folder:
        (folder / "manifest.json").write_text("1")
    with new_prepared_folder(target, overwrite=True) as folder:
        (folder / "manifest.json").write_text("2")
    assert (target / "manifest.json").read_text() == "2"
