from pathlib import Path

import polars as pl
import pytest

from turret.data.configuration import load_configuration
from turret.data.errors import ConfigurationError, SourceError
from turret.data.object_stores.local_copies import LocalCopies
from turret.data.reading.open_source import open_source
from turret.data.reading.schema import PrepareConfig
from turret.data.reading.tables import Source


def _open(tmp_path: Path, **overrides: object) -> Source:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    config = load_configuration(PrepareConfig, overrides=named)
    return open_source(config, work, LocalCopies(work))


def test_a_folder_of_events_items_and_users_is_opened_whole(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("events.csv", "items.jsonl"):
        (folder / name).write_text('{"item_id": 1}\n')
    source = _open(tmp_path, source=folder)
    assert source.items is not None
    assert source.users is None
    assert [path.name for path in source.files] == ["events.csv", "items.jsonl"]


def test_other_usual_names_are_found_unless_two_could_be_meant(tmp_path: Path) -> None:
    for name in ("transactions.csv", "products.csv", "customers.csv"):
        (tmp_path / name).write_text("a,b\n")
    source = _open(tmp_path, source=tmp_path)
    assert [path.name for path in source.files] == ["transactions.csv", "products.csv", "customers.csv"]
    (tmp_path / "clicks.tsv").write_text("a\tb\n")
    with pytest.raises(SourceError, match=r"clicks\.tsv and transactions\.csv"):
        _open(tmp_path, source=tmp_path)


def test_endings_in_capitals_are_endings_too(tmp_path: Path) -> None:
    (tmp_path / "Events.CSV").write_text("a,b\n")
    assert [path.name for path in _open(tmp_path, source=tmp_path).files] == ["Events.CSV"]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("item_features__text", "item_features requires an items file; name it with --items"),
        ("fields", "fields requires an items file; name it with --items"),
        ("user_features__category", "user_features requires a users file; name it with --users"),
    ],
)
def test_what_is_known_of_items_and_users_needs_their_file(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    (tmp_path / "events.csv").write_text("a,b\n")
    with pytest.raises(ConfigurationError, match=sentence):
        _open(tmp_path, source=tmp_path, **{setting: ["title"]})
    for name in ("items.csv", "users.csv"):
        (tmp_path / name).write_text("a,b\n")
    _open(tmp_path, source=tmp_path, **{setting: ["title"]})


def test_files_named_apart_come_with_the_events_or_replace_those_of_the_folder(tmp_path: Path) -> None:
    for name in ("events.csv", "items.csv", "mine.csv", "users.csv"):
        (tmp_path / name).write_text("a,b\n")
    for source in (tmp_path, tmp_path / "events.csv"):
        opened = _open(tmp_path, source=source, items=tmp_path / "mine.csv", users=tmp_path / "users.csv")
        assert opened.items is not None
        assert opened.items.path.name == "mine.csv"
        assert opened.users is not None


def test_a_folder_without_events_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refusal:
        _open(tmp_path, source=tmp_path)
    for name in ("events", "transactions", ".csv", ".parquet", ".jsonl", "u.data", "ratings.dat", "--train"):
        assert name in str(refusal.value)
    with pytest.raises(SourceError, match="there is no file or folder"):
        _open(tmp_path, source=tmp_path / "none")


def test_parts_are_numbered_whether_or_not_there_is_a_validation_file(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        (tmp_path / name).write_text("a,b\n")
    parts = {"split__kind": "files", "split__train": tmp_path / "a.csv", "split__test": tmp_path / "c.csv"}
    assert [part for part, _ in _open(tmp_path, **parts).parts] == [0, 2]
    assert [part for part, _ in _open(tmp_path, **parts, split__validation=tmp_path / "b.csv").parts] == [
        0,
        1,
        2,
    ]


def test_parquet_parts_are_the_events_by_themselves_or_under_a_usual_name(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    for name in ("events", "clicks.parquet", "other"):
        (folder / name).mkdir(parents=True)
    for number in (1, 0):
        pl.DataFrame({"a": [1]}).write_parquet(folder / "events" / f"part-{number}.parquet")
        pl.DataFrame({"a": [1]}).write_parquet(folder / "other" / f"part-{number}.parquet")
    (folder / "items.csv").write_text("a,b\n")
    opened = _open(tmp_path, source=folder)
    assert [path.name for path in opened.files] == ["part-0.parquet", "part-1.parquet", "items.csv"]
    assert [path.name for path in _open(tmp_path, source=folder / "other").files] == [
        "part-0.parquet",
        "part-1.parquet",
    ]
