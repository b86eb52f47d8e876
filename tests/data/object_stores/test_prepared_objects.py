import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.object_stores.written import names, read, remove, write
from turret.data.errors import DataError, FetchError, SourceError
from turret.data.manifest import MANIFEST
from turret.data.object_stores.objects import Objects
from turret.data.object_stores.prepared_objects import (
    changed_prepared,
    fetch_prepared,
    new_prepared,
    upload_prepared,
)
from turret.data.prepared import PreparedData
from turret.data.preparing.append import append
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig

EVENTS = "user_id,item_id,time\n" + "".join(
    f"{user},{item},{item}\n" for user in range(4) for item in range(5)
)


def written(url: str, tmp_path: Path, events: str = EVENTS, overwrite: bool = False) -> str:
    """Write prepared data, and return its fingerprint."""
    source = tmp_path / "events.csv"
    source.write_text(events)
    with new_prepared(url, overwrite) as folder:
        return prepare(PrepareConfig(source=source), folder).manifest.fingerprint


def test_prepared_data_comes_back_as_it_was(store: str, tmp_path: Path) -> None:
    fingerprint = written(f"{store}/prepared", tmp_path)
    folder = fetch_prepared(f"{store}/prepared/", tmp_path / "data")
    assert folder == tmp_path / "data" / "prepared"
    fetched = PreparedData.open(folder)
    fetched.verify()
    assert fetched.fingerprint == fingerprint
    assert [path.name for path in folder.parent.iterdir()] == ["prepared"]


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


def test_files_beside_the_same_data_stay(store: str, tmp_path: Path) -> None:
    written(f"{store}/prepared", tmp_path)
    folder = fetch_prepared(f"{store}/prepared", tmp_path / "data")
    notes = folder / "notes" / "monday.txt"
    notes.parent.mkdir()
    notes.write_text("dear")
    fetch_prepared(f"{store}/prepared", tmp_path / "data")
    assert notes.read_text() == "dear"


def test_a_damaged_manifest_is_named_by_its_url(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    write(f"{url}/{MANIFEST}", "{")
    with pytest.raises(DataError, match=rf"can't read {url}/manifest\.json"):
        fetch_prepared(f"{url}/", tmp_path / "data")


def test_newer_data_replaces_the_folder(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    folder = fetch_prepared(url, tmp_path / "data")
    newer = written(url, tmp_path, EVENTS + "9,1,1\n", overwrite=True)
    assert PreparedData.open(fetch_prepared(url, tmp_path / "data")).fingerprint == newer
    assert PreparedData.open(folder).fingerprint == newer


def test_what_is_there_is_not_replaced_unasked(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    with pytest.raises(
        DataError, match="exists already; choose another address, or replace it with --overwrite"
    ):
        written(url, tmp_path)
    letter = write(f"{store}/home/letter.txt", "dear")
    with pytest.raises(DataError, match="home has objects that are not prepared data"):
        written(f"{store}/home", tmp_path, overwrite=True)
    assert read(letter) == b"dear"
    other = tmp_path / "data" / "prepared"
    other.mkdir(parents=True)
    (other / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match="exists already"):
        fetch_prepared(url, tmp_path / "data")


def test_objects_of_the_older_data_are_removed(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    expected = names(url)
    write(f"{url}/left_behind.npy", "1")
    written(url, tmp_path, overwrite=True)
    assert names(url) == expected


def test_a_failure_meanwhile_leaves_no_manifest(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)

    def interrupted(self: Objects, folder: Path, names: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Objects, "upload", interrupted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        written(url, tmp_path, overwrite=True)
    (kept,) = tmp_path.glob("turret-*/prepared")
    assert f"turret data upload {kept} --to {url} --overwrite" in capsys.readouterr().err
    with pytest.raises(FetchError, match=r"is not prepared data: it has no manifest\.json"):
        fetch_prepared(url, tmp_path / "data")


def _append(new: str, url: str, before_upload: Callable[[], None]) -> None:
    with changed_prepared(url) as folder:
        append(new, folder)
        before_upload()


def test_data_whose_upload_fails_is_kept_and_written_again(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    new = write(f"{store}/new.csv", "user_id,item_id,time\n7,1,9\n")
    upload = Objects.upload

    def failing(self: Objects, folder: Path, names: list[str]) -> None:
        if MANIFEST in names:
            raise SourceError("the token has expired")
        upload(self, folder, names)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch, pytest.raises(SourceError) as raised:
        _append(new, url, lambda: patch.setattr(Objects, "upload", failing))
    (kept,) = tmp_path.glob("turret-*/prepared")
    assert str(raised.value) == (
        f"the token has expired; the new data is whole in {kept}; write it by "
        f"`turret data upload {kept} --to {url} --overwrite`, then remove the folder"
    )
    upload_prepared(kept, url, overwrite=True)
    grown = PreparedData.open(fetch_prepared(url, tmp_path / "data"))
    grown.verify()
    assert grown.manifest.counts.users == 5


def test_an_upload_replaces_only_prepared_data_that_it_may(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    fingerprint = written(url, tmp_path)
    folder = fetch_prepared(url, tmp_path / "data")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="exists already; choose another address"):
        upload_prepared(folder, url, overwrite=False)
    letter = write(f"{store}/home/letter.txt", "dear")
    upload_prepared(folder, f"{store}/home", overwrite=True)
    assert read(letter) == b"dear"
    assert names(f"{store}/home") == sorted([*names(url), "letter.txt"])
    assert PreparedData.open(fetch_prepared(f"{store}/home", tmp_path)).fingerprint == fingerprint
    (folder / "users.json").unlink()
    with pytest.raises(DataError, match="are not those of its manifest; prepare the data again"):
        upload_prepared(folder, url, overwrite=True)


def test_the_manifest_is_written_last(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: list[str] = []
    monkeypatch.setattr(Objects, "upload", lambda self, folder, names: uploaded.extend(names))
    written(f"{store}/prepared", tmp_path)
    assert uploaded.index(MANIFEST) == len(uploaded) - 1 > 0


def test_a_failed_preparation_writes_nothing(store: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        written(f"{store}/prepared", tmp_path, "user_id,item_id,time\n,,\n")
    assert names(store) == []


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda url: remove(url), r"lacks users\.json, which its manifest names; write it again"),
        (lambda url: write(url, read(url)[::-1]), r"are not those of its manifest"),
    ],
)
def test_damaged_objects_are_found(store: str, tmp_path: Path, damage: object, sentence: str) -> None:
    assert callable(damage)
    written(f"{store}/prepared", tmp_path)
    damage(f"{store}/prepared/users.json")
    with pytest.raises(FetchError, match=sentence):
        fetch_prepared(f"{store}/prepared", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_events_are_appended_to_data_in_a_store(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    written(url, tmp_path)
    new = write(f"{store}/new.csv", "user_id,item_id,time\n7,1,9\n")
    with changed_prepared(url) as folder:
        assert append(new, folder).new == 1
    grown = PreparedData.open(fetch_prepared(url, tmp_path / "data"))
    grown.verify()
    assert grown.manifest.counts.users == 5
    assert new in grown.manifest.sources


def test_nothing_at_the_address_is_an_error(store: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="has no manifest"):
        fetch_prepared(f"{store}/prepared", tmp_path)
    with pytest.raises(SourceError, match="is no object store"):
        fetch_prepared("shop://prepared", tmp_path)


def test_a_path_is_the_folder_itself(tmp_path: Path) -> None:
    place = str(tmp_path / "prepared")
    with new_prepared(place, overwrite=False) as new, changed_prepared(place) as changed:
        assert new == changed == tmp_path / "prepared"
    assert list(tmp_path.iterdir()) == []


def test_an_error_names_the_url_of_prepared_data(store: str, tmp_path: Path) -> None:
    url = f"{store}/prepared"
    with pytest.raises(DataError, match=rf"^{url} is full$"), new_prepared(url, overwrite=False) as folder:
        raise DataError(f"{folder} is full")
    assert names(url) == []
    written(url, tmp_path)
    with pytest.raises(DataError, match=rf"^{url} is old$"), changed_prepared(url) as folder:
        raise DataError(f"{folder} is old")
