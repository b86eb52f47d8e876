"""API keys: their form, their file, and the commands that make, list and revoke them."""

import hashlib
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

import turret.cli
from turret.service.errors import ServiceError
from turret.service.keys.key_file import add_key, read_keys, remove_key
from turret.service.keys.keys import Key, Keys, admin_record, digest_of, name_in, new_key, record

NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def keys_of(*records: Key) -> Keys:
    return Keys({one.name: one for one in records})


def bearer(key: str) -> bytes:
    return f"Bearer {key}".encode()


# ---- A key


def test_a_key_is_its_name_and_32_random_bytes_and_only_its_hash_is_kept() -> None:
    key, other = new_key("shop"), new_key("shop")
    assert re.fullmatch(r"turret_shop_[A-Za-z0-9_-]{43}", key)
    assert key != other
    assert name_in(key.encode()) == "shop"
    kept = record("shop", key, ["read"])
    assert kept.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert key.removeprefix("turret_shop_") not in kept.model_dump_json()


@pytest.mark.parametrize(
    ("form", "is_found"),
    [
        ("Bearer {}", True),
        ("bearer {}", True),
        ("BEARER {}", True),
        *((form, False) for form in ("{}", "Bearer  {}", "Basic {}", "Bearer {}x", "Bearer x{}", "Bearer{}")),
    ],
)
def test_only_the_whole_key_behind_its_scheme_is_found(form: str, is_found: bool) -> None:
    key = new_key("shop")
    found = keys_of(record("shop", key, ["read"])).find(form.format(key).encode(), NOW)
    assert (found is not None) is is_found


@pytest.mark.parametrize(
    "given", [None, b"", b"Bearer", b"Bearer ", b"Bearer turret_shop_", b"\xff\x00 \xff"]
)
def test_nothing_is_nobodys_key(given: bytes | None) -> None:
    assert keys_of(record("shop", new_key("shop"), ["read"])).find(given, NOW) is None


def test_a_key_of_another_name_is_not_found_under_this_one() -> None:
    """Nor is the dummy that unknown names are compared with."""
    mine, other = new_key("mine"), new_key("other")
    keys = keys_of(record("mine", mine, ["read"]), record("other", other, ["read"]))
    assert keys.find(bearer(mine.replace("turret_mine_", "turret_other_")), NOW) is None
    assert keys.find(bearer(mine.replace("mine", "nobody")), NOW) is None
    found = keys.find(bearer(other), NOW)
    assert found is not None
    assert found.name == "other"


def test_a_short_secret_is_nobodys_whatever_the_file_says() -> None:
    short, longer = "turret_short_fifteen-letters", "turret_longer_sixteen-letters-"
    keys = keys_of(record("short", short, ["read"]), record("longer", longer, ["read"]))
    assert keys.find(bearer(short), NOW) is None
    assert keys.find(bearer(longer), NOW) is not None


def test_an_expired_key_is_nobodys() -> None:
    key = new_key("shop")
    keys = keys_of(record("shop", key, ["read"], expires="2027-01-15T08:00:00Z"))
    assert keys.find(bearer(key), NOW - 1) is not None
    assert keys.find(bearer(key), NOW) is None


def test_a_key_without_a_name_is_the_admin_key() -> None:
    found = Keys({"": admin_record("any text")}).find(b"Bearer any text", NOW)
    assert found is not None
    assert found.scopes == ("admin",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scopes": []},
        {"scopes": ["root"]},
        {"sha256": "short"},
        {"rate": 0},
        {"burst": 0.5},
        {"expires": "2027-01-15T08:00:00"},
        {"colour": "blue"},
        # An underscore would end the name within the key.
        *({"name": name} for name in ("Shop", "a_b", "", "-a", "A", "a" * 41, "a\n")),
    ],
)
def test_what_is_no_record_of_a_key_is_refused(wrong: dict[str, Any]) -> None:
    right = record("shop-2", new_key("shop"), ["read"]).model_dump()
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Key.model_validate({**right, **wrong})


@pytest.mark.parametrize(
    ("rate", "burst", "expected"), [(None, None, 1.0), (5.0, None, 5.0), (0.2, None, 1.0), (5.0, 9.0, 9.0)]
)
def test_without_a_burst_it_is_what_comes_in_a_second(
    rate: float | None, burst: float | None, expected: float
) -> None:
    assert record("a", "k", ["read"], rate=rate, burst=burst).bucket_size == expected


# ---- The file


def test_keys_that_are_added_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "var" / "keys.json"
    for name in ("one", "other"):
        add_key(path, record(name, new_key(name), ["read"], rate=5))
    assert [key.name for key in read_keys(path)] == ["one", "other"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_is_taken_once_and_free_again_when_revoked(path: Path) -> None:
    add_key(path, record("shop", "a", ["read"]))
    with pytest.raises(ServiceError, match=r"already has a key shop"):
        add_key(path, record("shop", "b", ["read"]))
    remove_key(path, "shop")
    assert read_keys(path) == ()
    with pytest.raises(ServiceError, match=r"has no key shop; it has: none"):
        remove_key(path, "shop")


def test_writers_at_the_same_time_lose_nothing(path: Path) -> None:
    writers = [
        threading.Thread(target=add_key, args=(path, record(f"k{n}", "x", ["read"]))) for n in range(12)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_keys(path)) == 12
    assert {one.name for one in path.parent.iterdir()} == {"keys.json"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file"),
        ("{", "the file"),
        ('{"keys": [{"name": "x"}]}', "keys.0"),
        ('{"format_version": 2, "keys": []}', "format_version"),
        ('{"kyes": []}', "kyes"),
        ('{"keys": [SHOP, SHOP]}', "two keys are named shop"),
        (" " * 1_001, "larger than 1,000 bytes"),
    ],
)
def test_a_fault_in_a_file_is_said_with_its_path(
    path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr("turret.service.keys.key_file._LIMIT", 1_000)
    path.write_text(text.replace("SHOP", record("shop", "a", ["read"]).model_dump_json()))
    with pytest.raises(ServiceError, match=words) as caught:
        read_keys(path)
    assert str(path) in str(caught.value)


# ---- The commands


def keys(*words: str) -> str:
    answer = CliRunner().invoke(turret.cli.app, ["keys", *words])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_a_key_is_printed_alone_and_only_once(path: Path) -> None:
    scopes = ("--scope", "read", "--scope", "write")
    key = keys("new", "shop", *scopes, "--rate", "50", "--days", "9", "--file", str(path)).strip()
    (kept,) = read_keys(path)
    assert kept.digest == digest_of(key.encode())
    assert (kept.scopes, kept.rate) == (("read", "write"), 50)
    assert kept.expires is not None
    assert (kept.expires - kept.created).days in (8, 9)
    listed = keys("list", "--file", str(path))
    assert "shop: read, write; 50 a second" in listed
    assert key not in path.read_text() + listed


def test_the_file_is_the_services_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_KEYS", str(path))
    keys("new", "shop", "--scope", "read")
    assert path.exists()
