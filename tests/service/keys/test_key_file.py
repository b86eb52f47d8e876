import threading
import time
from pathlib import Path

import pytest

from turret.service.errors import ServiceError
from turret.service.keys.key_file import KeyFile, add_key, parse_keys, read_keys, remove_key
from turret.service.keys.keys import new_key, record


def test_what_is_added_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "var" / "keys.json"
    for name in ("one", "two"):
        add_key(path, record(name, new_key(name), ["read"], rate=5))
    assert [key.name for key in read_keys(path)] == ["one", "two"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_is_taken_once_and_free_again_when_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path, record("shop", "a", ["read"]))
    with pytest.raises(ServiceError, match=r"already has a key shop"):
        add_key(path, record("shop", "b", ["read"]))
    remove_key(path, "shop")
    assert read_keys(path) == ()
    with pytest.raises(ServiceError, match=r"has no key shop; it has: none"):
        remove_key(path, "shop")


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    writers = [
        threading.Thread(target=add_key, args=(path, record(f"k{n}", "x", ["read"]))) for n in range(12)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_keys(path)) == 12
    assert {one.name for one in tmp_path.iterdir()} == {"keys.json"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file"),
        ("{", "the file"),
        ('{"keys": [{"name": "x"}]}', "keys.0"),
        ('{"format_version": 2, "keys": []}', "format_version"),
        ('{"kyes": []}', "kyes"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_without_its_contents(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ServiceError, match=words) as caught:
        read_keys(path)
    assert str(path) in str(caught.value)


def test_two_keys_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path, record("shop", "a", ["read"]))
    path.write_text(
        path.read_text().replace(
            '"keys": [', '"keys": [' + record("shop", "b", ["read"]).model_dump_json() + ","
        )
    )
    with pytest.raises(ServiceError, match="two keys are named shop"):
        read_keys(path)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turret.service.keys.key_file._LIMIT", 10)
    path = tmp_path / "keys.json"
    path.write_text(" " * 11)
    with pytest.raises(ServiceError, match="larger than 10 bytes"):
        read_keys(path)


@pytest.mark.nightly
def test_many_keys_are_parsed_in_a_time_that_grows_with_their_number() -> None:
    """A worker parses them between two requests; comparing each name with each took seconds."""

    def seconds(count: int) -> float:
        keys = tuple(record(f"k{number}", "x", ["read"]) for number in range(count))
        content = KeyFile(keys=keys).model_dump_json().encode()
        begun = time.process_time()
        assert len(parse_keys(content, Path("keys.json"))) == count
        return time.process_time() - begun

    assert min(seconds(8000) for _ in range(3)) < 20 * min(seconds(1000) for _ in range(3))


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"can't write the keys to .*/file/keys\.json"):
        add_key(tmp_path / "file" / "keys.json", record("shop", "a", ["read"]))
