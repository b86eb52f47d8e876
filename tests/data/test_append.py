"""Appended data is the data that preparing everything again gives, bit for bit."""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.data.conftest import prepare_as
from turret.data.errors import ConfigurationError, DataError
from turret.data.files import locked
from turret.data.manifest import DataManifest
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.progress import LOGGER

Row = tuple[Any, ...]
COLUMNS = ("user_id", "item_id", "timestamp", "w", "event")
START = 1_700_000_000


def write(path: Path, rows: Sequence[Row]) -> Path:
    pl.DataFrame(rows, schema=COLUMNS[: len(rows[0])], orient="row").write_csv(path)
    return path


def prepared(source: Path, target: Path, **settings: object) -> PreparedData:
    return PreparedData.open(prepare_as(target, source=source, **settings).folder)


def assert_grown(folder: Path, logs: Sequence[list[Row]], whole: list[Row], **settings: object) -> None:
    """The first log, to which the others are appended, becomes equal to `whole`, prepared in one."""
    prepared(write(folder / "0.csv", logs[0]), folder / "grown", **settings)
    for number, log in enumerate(logs[1:], 1):
        append(write(folder / f"{number}.csv", log), folder / "grown")
    grown = PreparedData.open(folder / "grown")
    grown.verify()
    expected = prepared(write(folder / "whole.csv", whole), folder / "whole", **settings)
    for name in ("fingerprint", "files", "counts", "negatives", "split", "time"):
        assert getattr(grown.manifest, name) == getattr(expected.manifest, name), name


def random_rows(seed: int, texts: bool = False) -> list[Row]:
    """Few users, items and times, so that events repeat, with weights that tell equal events apart."""
    pick = random.Random(seed).randrange
    user, item = ("u", "i") if texts else ("", "")
    return [
        (f"{user}{pick(12)}", f"{item}{pick(8)}", START + pick(6), 1 + place % 3)
        for place in range(pick(20, 120))
    ]


def without_known(before: Sequence[Row], added: Sequence[Row]) -> list[Row]:
    """The rows of `added` but for as many equal ones as `before` has; a naive loop."""
    left = Counter(row[:3] for row in before)
    new = []
    for row in added:
        if left[row[:3]]:
            left[row[:3]] -= 1
        else:
            new.append(row)
    return new


SETTINGS: list[dict[str, object]] = [
    {},
    {"columns.weight": "w"},
    {"split.kind": "time"},
    {"split.kind": "time", "split.validation_from": START + 2, "split.test_from": START + 4},
    {"filters.duplicates": "exact"},
    {"filters.duplicates": "first", "columns.weight": "w"},
    {"filters.duplicates": "last", "columns.weight": "w"},
    {"filters.duplicates": "strongest", "columns.weight": "w"},
    {"columns.time_unit": "number", "filters.min_weight": 2, "columns.weight": "w"},
]


@pytest.mark.parametrize(("seed", "settings"), [*enumerate(SETTINGS)])
def test_appending_gives_what_preparing_everything_gives(
    tmp_path: Path, seed: int, settings: dict[str, object]
) -> None:
    """With new users, new items, repeats of old events, and new events between the old ones."""
    rows = random_rows(seed, texts=bool(seed % 2))
    before, new = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    added = [*random.Random(seed).sample(before, len(before) // 3), *new]
    assert_grown(tmp_path, [before, added], [*before, *without_known(before, added)], **settings)


def test_ids_that_are_no_integers_sort_all_users_and_items_anew(tmp_path: Path) -> None:
    """Of integers until then: as texts, 10 comes before 9."""
    before, new = [(9, 10, START), (10, 9, START + 1)], [("a", "b", START), ("9", "9", START + 2)]
    texts = [(str(user), str(item), time) for user, item, time in before]
    assert_grown(tmp_path, [before, new], [*texts, *new])
    assert PreparedData.open(tmp_path / "grown").users.ids(range(3)) == ["10", "9", "a"]


def test_appending_in_several_steps_gives_the_same_and_the_last_step_again_nothing(tmp_path: Path) -> None:
    rows = random_rows(11)
    # Each has a part that the data has already.
    logs = [rows[:10], *(rows[5 * step : 10 * step + 10] for step in range(1, 4))]
    whole = logs[0]
    for log in logs[1:]:
        whole = [*whole, *without_known(whole, log)]
    assert_grown(tmp_path, logs, whole)
    assert append(tmp_path / "3.csv", tmp_path / "grown").new == 0
    assert PreparedData.open(tmp_path / "grown").manifest.counts.events == len(whole)


def test_a_log_in_file_order_grows_at_the_end_of_histories(tmp_path: Path) -> None:
    """Without times nothing tells a repeat from an event that the data has, so that all rows are new."""
    rows = [row[:2] for row in random_rows(5)]
    assert_grown(tmp_path, [rows[:20], rows[20:]], rows, **{"columns.in_file_order": True})


def test_features_are_those_of_all_items_from_the_file_of_the_first_time(tmp_path: Path) -> None:
    rows = random_rows(3, texts=True)
    catalog = pl.DataFrame(
        {
            "item_id": [f"i{number}" for number in range(8)],
            "genre": list("abcabcab"),
            "price": [1.0, 9.0, 2.0, None, 4.0, 4.0, 0.5, 7.0],
        }
    )
    (tmp_path / "shop").mkdir()
    catalog.write_csv(tmp_path / "shop" / "items.csv")
    write(tmp_path / "shop" / "events.csv", rows[:9])
    prepared(tmp_path / "shop", tmp_path / "grown")
    new = without_known(rows[:9], rows[9:])
    append(write(tmp_path / "1.csv", new), tmp_path / "grown")
    write(tmp_path / "shop" / "events.csv", [*rows[:9], *new])
    whole = prepared(tmp_path / "shop", tmp_path / "whole")
    assert whole.manifest.item_features
    assert PreparedData.open(tmp_path / "grown").fingerprint == whole.fingerprint


def test_columns_of_other_names_are_found_or_named(tmp_path: Path) -> None:
    """As a dump of histories has them, whose times are dates; the items file keeps its id column."""
    log = pl.DataFrame({"who": ["a", "b"], "sku": ["x", "y"], "at": [START, START + 1]})
    log.write_csv(tmp_path / "log.csv")
    pl.DataFrame({"sku": ["x", "y", "z"], "genre": ["g", "h", "g"]}).write_csv(tmp_path / "items.csv")
    names: dict[str, object] = {"columns.user": "who", "columns.item": "sku", "columns.time": "at"}
    extras: dict[str, object] = {"columns.time_unit": "seconds", "items": tmp_path / "items.csv"}
    prepared(tmp_path / "log.csv", tmp_path / "grown", **names, **extras)
    times = pl.Series([1000 * (START + 1), 1000 * (START + 2)]).cast(pl.Datetime("ms", "UTC"))
    pl.DataFrame({"user_id": ["b", "c"], "item_id": ["y", "z"], "timestamp": times}).write_parquet(
        tmp_path / "d.parquet"
    )
    assert append(tmp_path / "d.parquet", tmp_path / "grown").new == 1
    log.rename({"who": "w", "sku": "s", "at": "t"}).write_csv(tmp_path / "other.csv")
    with pytest.raises(DataError, match="has none of the usual columns for the user"):
        append(tmp_path / "other.csv", tmp_path / "grown")
    named = {"columns.user": "w", "columns.item": "s", "columns.time": "t"}
    assert append(tmp_path / "other.csv", tmp_path / "grown", named).new == 0
    manifest = DataManifest.load(tmp_path / "grown")
    assert (manifest.columns.user, manifest.counts.events) == ("who", 3)
    assert len(manifest.sources) == 4


def dump(path: Path, *rows: tuple[str, str, int, str | None]) -> Path:
    """A file as `turret history dump` writes it: times are dates, and the column of kinds is called kind."""
    frame = pl.DataFrame(rows, schema=("user_id", "item_id", "timestamp", "kind"), orient="row")
    frame.with_columns(pl.from_epoch("timestamp").cast(pl.Datetime("ms", "UTC"))).write_parquet(path)
    return path


@pytest.fixture
def with_kinds(tmp_path: Path) -> Path:
    """Data of two events whose kinds are in a column of another name, with a unit of times and a format."""
    text = f"user_id,item_id,timestamp,event\na,x,{START},view\na,y,{START + 1},buy\n"
    (tmp_path / "0.csv").write_text(text)
    stated: dict[str, object] = {"columns.time_unit": "seconds", "format.kind": "csv"}
    kinds: dict[str, object] = {"columns.kind": "event", "kinds": ["view", "buy=target:5"]}
    prepared(tmp_path / "0.csv", tmp_path / "data", **kinds, **stated)
    return tmp_path / "data"


def test_dumped_kinds_are_found_and_events_without_one_are_said(tmp_path: Path, with_kinds: Path) -> None:
    later = ("b", "x", START + 2, "buy"), ("b", "y", START + 3, None), ("b", "y", START + 4, " ")
    report = append(dump(tmp_path / "d.parquet", *later, ("b", "y", START + 5, "share")), with_kinds)
    assert report.sentence() == (
        "1 of 4 events are new; dropped: filter missing kind (2), filter kinds (1); `--default-kind` of "
        "`turret data prepare` or `append` gives them a kind; "
        f"{with_kinds} has 3 events of 2 users and 2 items"
    )
    weights = PreparedData.open(with_kinds).weights
    assert weights is not None
    assert weights.tolist() == [1, 5, 5]


def test_a_default_kind_is_kept_for_later_logs(tmp_path: Path, with_kinds: Path) -> None:
    log = dump(tmp_path / "d.parquet", ("b", "x", START + 2, None))
    assert append(log, with_kinds, {"filters.default_kind": "buy"}).new == 1
    assert append(dump(tmp_path / "e.parquet", ("c", "x", START + 3, None)), with_kinds).new == 1
    data = PreparedData.open(with_kinds)
    assert data.weights is not None
    assert (data.weights.tolist(), data.manifest.columns.kind) == ([1, 5, 5, 5], "event")


def test_equal_events_of_other_kinds_are_new(tmp_path: Path) -> None:
    a, b, c = ((user, item, START, 1) for user, item in ("ax", "bx", "cx"))
    old = [(*a, "view"), (*a, "buy"), ("a", "y", START + 1, 1, "buy"), (*c, "cart"), (*c, "ping")]
    new = [(*a, "view"), (*a, "cart"), ("a", "q", START + 2, 1, "buy"), (*b, "ping")]
    kinds = ["view=signal", "cart=signal", "buy=target:3", "ping=ignored"]
    assert_grown(tmp_path, [old, new], [*old, *new[1:]], **{"columns.kind": "event", "kinds": kinds})


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (0, {}),
        (1, {"columns.weight": "w"}),
        (2, {"split.kind": "time"}),
        (3, {"filters.max_user_events": 14}),
        (4, {"filters.max_user_events": 13, "filters.duplicates": "exact"}),
    ],
)
def test_negatives_and_users_with_too_many_events_are_appended_as_prepared(
    tmp_path: Path, seed: int, settings: dict[str, object]
) -> None:
    """A return that no target followed until now belongs to the next new one, and a robot stays out."""
    draw = random.Random(seed)
    kinds = ["view", "view", "buy", "buy", "back"]
    drawn = [
        (draw.choice("abcdefgh"), draw.choice("xyzqrs"), START + draw.randrange(400), draw.choice(kinds))
        for _ in range(120)
    ]
    rows = [(user, item, START, 1, "buy") for user, item in zip("abcdefgh", "xyzqrsxy", strict=True)]
    rows += [(*row[:3], 1 + number % 3, row[3]) for number, row in enumerate(dict.fromkeys(drawn))]
    table = {"columns.kind": "event", "kinds": ["view=signal", "buy=target:2", "back=negative"]}
    assert_grown(tmp_path, [rows[:70], rows[50:100], rows[95:]], rows, **table, **settings)
    whole = PreparedData.open(tmp_path / "whole")
    assert whole.negatives is not None
    assert len(whole.negatives.items) > 3
    assert (tmp_path / "whole" / "left_out_users.json").exists() == ("filters.max_user_events" in settings)


def test_of_two_appends_at_once_the_second_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It then reads the data that the first has written, so that no event is lost."""
    target = tmp_path / "data"
    prepared(write(tmp_path / "0.csv", [(1, 1, START)]), target)
    with ExitStack() as first:
        first.enter_context(locked(target))

        def ends(*words: object) -> None:
            """The first one ends once the second says that it waits."""
            first.close()
            append(write(tmp_path / "1.csv", [(2, 1, START)]), target)

        monkeypatch.setattr(logging.getLogger(LOGGER), "info", ends)
        append(write(tmp_path / "2.csv", [(3, 1, START)]), target)
    assert PreparedData.open(target).users.ids(range(3)) == [1, 2, 3]


MERGED_ALONE = r"has labels or negatives .* merges events alone; prepare the whole log again"


@pytest.mark.parametrize(
    ("settings", "new", "options", "message"),
    [
        ({"filters.min_item_events": 2}, [(1, 1, START, 1)], {}, "min_item_events.*prepare the whole log"),
        ({}, [(1, 1, 5, 1)], {}, "the times of .* are of the kind 'timestamp', those of .* 'number'"),
        ({"columns.weight": "w", "on_bad": "drop"}, [(1, 1, START)], {}, "has no column 'w' for the weight"),
        ({"columns.label": "w"}, [(1, 1, START, 1)], {}, MERGED_ALONE),
        ({}, [(1, 1, START, 1)], {"columns.label": "w"}, MERGED_ALONE),
        ({}, [(1, 1, START, 1)], {"columns.negatives": "w"}, MERGED_ALONE),
    ],
)
def test_an_impossible_growth_is_refused_and_nothing_changes(
    tmp_path: Path, settings: dict[str, object], new: list[Row], options: dict[str, object], message: str
) -> None:
    log = write(tmp_path / "0.csv", [(2, 1, START, 1), (10, 1, START, 1), (10, 2, START, 0)])
    before = prepared(log, tmp_path / "data", **settings)
    with pytest.raises(DataError, match=message):
        append(write(tmp_path / "1.csv", new), tmp_path / "data", options)
    assert PreparedData.open(tmp_path / "data").manifest == before.manifest


def test_data_split_by_files_is_refused(tmp_path: Path) -> None:
    log = write(tmp_path / "0.csv", [(1, 1, START, 1), (2, 1, START, 1)])
    prepare_as(tmp_path / "files", split={"kind": "files", "train": log, "test": log})
    with pytest.raises(ConfigurationError, match="is split by files"):
        append(log, tmp_path / "files")


def test_an_items_file_that_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path / "0.csv", [(1, 1, START, 1)])
    pl.DataFrame({"item_id": [1], "genre": ["a"]}).write_csv(tmp_path / "items.csv")
    prepared(tmp_path / "0.csv", tmp_path / "data", items=tmp_path / "items.csv")
    (tmp_path / "items.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(DataError, match=r"were read from .*items\.csv, which is gone; .* with --items"):
        append(tmp_path / "0.csv", tmp_path / "data")
    assert append(tmp_path / "0.csv", tmp_path / "data", {"items": tmp_path / "moved.csv"}).new == 0
    assert append(tmp_path / "0.csv", tmp_path / "data").new == 0
