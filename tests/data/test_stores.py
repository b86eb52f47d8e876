"""Object stores: objects, local copies, and prepared data in them."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner, Result

from turret.data.cli import app
from turret.data.errors import DataError, FetchError, MissingExtraError, SourceError
from turret.data.manifest import MANIFEST
from turret.data.object_stores import (
    Objects,
    changed_prepared,
    fetch_prepared,
    local_copies,
    new_prepared,
)
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig


def write(url: str, content: str | bytes) -> str:
    """Write an object and return its URL."""
    with fsspec.open(url, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    return url


def names(url: str) -> list[str]:
    """The names of all objects below a URL."""
    store, path = fsspec.url_to_fs(url)
    store.invalidate_cache()
    return sorted(found[len(path.rstrip("/")) + 1 :] for found in store.find(path))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new bucket of an S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    fsspec.filesystem("s3").mkdir("bucket")
    yield "s3://bucket"
    server.stop()


@pytest.fixture
def store() -> str:
    """The URL of an empty place in memory."""
    return f"memory://{uuid4().hex}"


def test_an_object_has_no_name_below_itself_and_others_their_names(store: str) -> None:
    write(f"{store}/shop/events.csv", "a,b\n")
    write(f"{store}/shop/events/part-0.csv", "a\n")
    write(f"{store}/shopping/other.csv", "a\n")
    assert Objects(f"{store}/shop/events.csv").sizes() == {"": 4}
    assert Objects(f"{store}/shop/").sizes() == {"events.csv": 4, "events/part-0.csv": 2}
    assert Objects(f"{store}/nothing").sizes() == {}


def test_a_name_that_leads_out_of_the_folder_is_refused(store: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has an object 'a/\.\./\.\./b', which no file can be called"):
        Objects(store).download({"a/../../b": 1}, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_changes_meanwhile_is_not_used(store: str, tmp_path: Path) -> None:
    write(f"{store}/events.csv", "a,b\n")
    with pytest.raises(
        SourceError, match=r"events\.csv has changed while it was read; run the command again"
    ):
        Objects(f"{store}/events.csv").download({"": 5}, tmp_path / "copy")


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_driver_is_named_by_its_extra(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(url: str) -> None:
        raise ImportError("Install it")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(MissingExtraError, match=rf"{scheme}://bucket/a .* pip install .*\[{extra}\]'"):
        Objects(f"{scheme}://bucket/a")


def test_copies_keep_their_names_and_are_made_once(store: str, tmp_path: Path) -> None:
    events, other = write(f"{store}/a/events.csv", "new\n"), write(f"{store}/b/events.csv", "old\n")
    with local_copies([events, other], tmp_path / "prepared") as copies:
        assert list(copies) == [events, other]
        assert (copies[events].name, copies[events].read_text()) == ("events.csv", "new\n")
        assert copies[other].read_text() == "old\n"
        assert [path.name.startswith(".prepared.") for path in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []


EVENTS = "user_id,item_id,time\n" + "".join(
    f"{user},{item},{item}\n" for user in range(4) for item in range(5)
)


def written(url: str, tmp_path: Path, events: str = EVENTS, overwrite: bool = False) -> str:
    """Write prepared data, and return its fingerprint."""
    source = tmp_path / "events.csv"
    source.write_text(events)
    with new_prepared(url, overwrite) as folder:
        return prepare(PrepareConfig(source=source), folder).manifest.fingerprint


def test_the_same_data_is_not_fetched_twice_and_a_damaged_copy_is_replaced(
    store: str, tmp_path: Path
) -> None:
    written(f"{store}/prepared", tmp_path)
    folder = fetch_prepared(f"{store}/prepared", tmp_path)
    written_at = (folder / MANIFEST).stat().st_mtime_ns
    fetch_prepared(f"{store}/prepared", tmp_path)
    assert (folder / MANIFEST).stat().st_mtime_ns == written_at
    users, manifest = folder / "users.json", folder / MANIFEST
    for damage in (
        users.unlink,
        lambda: users.write_text(users.read_text().replace("0", "7")),
        lambda: manifest.write_text("{"),
    ):
        damage()
        fetch_prepared(f"{store}/prepared", tmp_path)
        PreparedData.open(folder).verify()


def test_what_is_there_is_not_replaced_unasked(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    write(f"{url}/letter.txt", "dear")
    with pytest.raises(
        DataError, match="exists already; choose another address, or replace it with --overwrite"
    ):
        written(url, tmp_path)
    written(url, tmp_path, "user_id,item_id,time\n1,1,1\n", overwrite=True)
    assert Objects(url).sizes()["letter.txt"] == 4
    other = tmp_path / "data" / "prepared"
    other.mkdir(parents=True)
    (other / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="exists already"):
        fetch_prepared(url, tmp_path / "data")


def _append(new: str, url: str, before_upload: Callable[[], None]) -> None:
    with changed_prepared(url) as folder:
        append(new, folder)
        before_upload()


def test_older_data_stays_whole_where_an_upload_fails(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{store}/prepared"
    before = written(url, tmp_path)
    new = write(f"{store}/new.csv", "user_id,item_id,time\n7,1,9\n")
    upload = Objects.upload

    def failing(self: Objects, files: dict[str, Path]) -> None:
        if MANIFEST in files:
            raise SourceError("the token has expired")
        upload(self, files)

    with monkeypatch.context() as patch, pytest.raises(SourceError, match="the token has expired"):
        _append(new, url, lambda: patch.setattr(Objects, "upload", failing))
    assert PreparedData.open(fetch_prepared(url, tmp_path / "data")).fingerprint == before
    _append(new, url, lambda: None)
    grown = PreparedData.open(fetch_prepared(url, tmp_path / "data"))
    assert grown.manifest.counts.users == 5
    assert {name.partition("/")[0] for name in names(url)} == {MANIFEST, grown.fingerprint}


def test_data_that_changes_meanwhile_is_not_replaced(store: str, tmp_path: Path) -> None:
    """Of two appends at once the first one counts, and the other says so."""
    url = f"{store}/prepared"
    written(url, tmp_path)
    first, second = (
        write(f"{store}/{user}.csv", f"user_id,item_id,time\n{user},1,9\n") for user in ("7", "8")
    )
    with pytest.raises(DataError, match=r"another command has changed .*; run this one again"):
        _append(second, url, lambda: _append(first, url, lambda: None))
    _append(second, url, lambda: None)
    grown = PreparedData.open(fetch_prepared(url, tmp_path / "data"))
    assert {"7", "8"} <= set(map(str, grown.users.ids(range(len(grown.users)))))


def test_damaged_objects_are_found(store: str, tmp_path: Path) -> None:
    users = f"{store}/prepared/{written(f'{store}/prepared', tmp_path)}/users.json"
    write(users, "{}")
    with pytest.raises(FetchError, match=r"are not those of its manifest"):
        fetch_prepared(f"{store}/prepared", tmp_path / "data")
    fsspec.filesystem("memory").rm(users)
    with pytest.raises(FetchError, match=r"lacks users\.json, which its manifest names; write it again"):
        fetch_prepared(f"{store}/prepared", tmp_path / "data")
    assert not any((tmp_path / "data").glob("*"))


# Logs in object stores: the same prepared data as from local files, and the same sentences.

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


def test_prepared_data_has_no_password_of_its_source(tmp_path: Path) -> None:
    source = write(f"memory://key:secret@{uuid4().hex}/events.csv", TRAIN)
    done = invoke(f"prepare {source} --to {tmp_path / 'new'}")
    assert done.exit_code == 0, done.exception
    assert "secret" not in done.output
    assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "new").rglob("*.json"))


@pytest.mark.process
def test_a_server_of_s3_keeps_prepared_data_that_is_fetched_replaced_and_grown(
    shop: tuple[Path, str], s3: str, tmp_path: Path
) -> None:
    """From and to a real server, by the commands; the manifest of the older data is the last to go."""
    target = f"{s3}/prepared"
    assert invoke(f"prepare {shop[0]} --to {target}").exit_code == 0
    expected = names(target)
    write(f"{target}/{'0' * 64}/left_behind.npy", "1")
    assert "exists already" in str(invoke(f"prepare {shop[0]} --to {target}").exception)
    assert invoke(f"prepare {shop[0]} --to {target} --overwrite").exit_code == 0
    assert names(target) == expected
    new = write(f"{s3}/new.csv", TEST)
    grown = invoke(f"append {new} --items {shop[0]}/items.jsonl --to {target}")
    assert f"2 of 2 events are new; {target} has 7 events" in grown.stdout
    fetched = invoke(f"fetch {target} --to {tmp_path / 'data'}")
    assert fetched.stdout == f"{target} is in {tmp_path / 'data' / 'prepared'}\n"
    opened = PreparedData.open(tmp_path / "data" / "prepared")
    opened.verify()
    assert opened.manifest.counts.events == 7
    assert new in opened.manifest.sources
