"""Logs in object stores: the same prepared data as from local files, and the same sentences."""

import json
import shlex
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from typer.testing import CliRunner, Result

from turret.data.cli import app
from turret.data.prepared import PreparedData

ITEMS = '{"item_id": 1, "genre": "a"}\n{"item_id": 2, "genre": "b"}\n'
TRAIN = "user_id,item_id,time\n1,1,1\n1,2,2\n2,1,3\n2,2,4\n3,1,5\n"
TEST = "user_id,item_id,time\n1,1,7\n2,1,8\n"


def invoke(words: str) -> Result:
    return CliRunner().invoke(app, shlex.split(words))


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, str]:
    """The same files in a folder and in a store."""
    folder, url = tmp_path / "shop", f"memory://{uuid4().hex}/shop"
    folder.mkdir()
    for name, text in {"events.csv": TRAIN, "items.jsonl": ITEMS, "test.csv": TEST}.items():
        (folder / name).write_text(text)
        with fsspec.open(f"{url}/{name}", "w") as stream:
            stream.write(text)
    return folder, url


@pytest.mark.parametrize(
    "words",
    [
        "prepare {}",
        "prepare {}/events.csv --items {}/items.jsonl",
        "prepare --train {}/events.csv --test {}/test.csv",
    ],
)
def test_prepared_data_is_that_of_local_files(shop: tuple[Path, str], tmp_path: Path, words: str) -> None:
    folder, url = shop
    for place, target in ((folder, "local"), (url, "fetched")):
        done = invoke(f"{words.format(place, place)} --to {tmp_path / target}")
        assert done.exit_code == 0, done.exception
    local, fetched = (PreparedData.open(tmp_path / target) for target in ("local", "fetched"))
    assert fetched.fingerprint == local.fingerprint
    expected = {str(path).replace(str(folder), url): one for path, one in local.manifest.sources.items()}
    assert fetched.manifest.sources == expected
    assert str(tmp_path) not in json.dumps(fetched.manifest.settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched", "local", "shop"]


def test_a_configuration_file_names_urls(shop: tuple[Path, str], tmp_path: Path) -> None:
    config = tmp_path / "prepare.toml"
    config.write_text(f'source = "{shop[1]}/events.csv"\nitems = "{shop[1]}/items.jsonl"\n')
    done = invoke(f"prepare --config {config} --to {tmp_path / 'prepared'}")
    assert done.exit_code == 0, done.exception
    assert PreparedData.open(tmp_path / "prepared").manifest.counts.items == 2


def test_bad_rows_and_warnings_name_the_url(tmp_path: Path) -> None:
    url = f"memory://{uuid4().hex}/events.csv"
    with fsspec.open(url, "w") as stream:
        stream.write(TRAIN + ",1,9\n")
    done = invoke(f"prepare {url} --to {tmp_path / 'prepared'}")
    assert f"1 row of {url} is not valid" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_prepared_data_is_written_to_a_store_fetched_and_grown(
    shop: tuple[Path, str], tmp_path: Path
) -> None:
    target = f"memory://{uuid4().hex}/prepared"
    assert invoke(f"prepare {shop[1]} --to {target}").exit_code == 0
    refused = invoke(f"prepare {shop[1]} --to {target}")
    assert "exists already" in str(refused.exception)
    assert invoke(f"prepare {shop[1]} --to {target} --overwrite").exit_code == 0
    grown = invoke(f"append {shop[1]}/test.csv --items {shop[1]}/items.jsonl --to {target}")
    assert f"2 of 2 events are new; {target} has 7 events" in grown.stdout
    fetched = invoke(f"fetch {target} --to {tmp_path / 'data'}")
    assert fetched.stdout == f"{target} is in {tmp_path / 'data' / 'prepared'}\n"
    assert PreparedData.open(tmp_path / "data" / "prepared").manifest.counts.events == 7


def test_appending_asks_for_the_items_of_a_folder_in_a_store(shop: tuple[Path, str], tmp_path: Path) -> None:
    assert invoke(f"prepare {shop[1]} --to {tmp_path / 'prepared'}").exit_code == 0
    asked = invoke(f"append {shop[1]}/test.csv --to {tmp_path / 'prepared'}")
    assert "have features or fields; name their file with --items" in str(asked.exception)
