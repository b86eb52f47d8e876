"""API keys: their form, their file, the commands, and the keys of a running service."""

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

import turret.cli
from tests.support.tools import require
from turret.service.errors import ServiceError
from turret.service.keys.keys import (
    Key,
    Keyring,
    add_key,
    admin_key,
    digest_of,
    find_key,
    new_key,
    read_keys,
    record,
    remove_key,
)
from turret.service.settings import Settings

NOW = 1_800_000_000.0
ADMIN_KEY = "the-admin-key-of-32-characters-x"  # that somebody chose


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def found_in(records: list[Key], authorization: bytes | None, now: float = NOW) -> Key | None:
    return find_key({one.sha256: one for one in records}, authorization, now)


def bearer(key: str) -> bytes:
    return f"Bearer {key}".encode()


# ---- A key


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
    for nothing in (None, b"", b"Bearer", b"Bearer ", b"Bearer turret_shop_", b"\xff\x00 \xff"):
        assert found_in([record("shop", key, ["read"])], nothing) is None
    found = found_in([record("shop", key, ["read"])], form.format(key).encode())
    assert (found is not None) is is_found


def test_a_short_secret_is_nobodys_whatever_the_file_says() -> None:
    short, longer = "turret_short_" + "s" * 31, "turret_longer_" + "s" * 32
    records = [record("short", short, ["read"]), record("longer", longer, ["read"])]
    assert found_in(records, bearer(short)) is None
    assert found_in(records, bearer(longer)) is not None


def test_an_expired_key_is_nobodys() -> None:
    key = new_key("shop")
    records = [record("shop", key, ["read"], expires="2027-01-15T08:00:00Z")]
    assert found_in(records, bearer(key), NOW - 0.5) is not None
    assert found_in(records, bearer(key), NOW) is None


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
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda name: add_key(path, record(name, "x", ["read"])), map("k{}".format, range(12))))
    assert len(read_keys(path)) == 12
    assert {one.name for one in path.parent.iterdir()} == {"keys.json"}


# ---- The commands


def test_a_key_is_printed_alone_and_only_once(path: Path) -> None:
    def keys(*words: str) -> str:
        answer = CliRunner().invoke(turret.cli.app, ["keys", *words, "--file", str(path)])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    scopes = ("--scope", "read", "--scope", "write")
    key = keys("new", "shop", *scopes, "--rate", "50", "--days", "9").strip()
    (kept,) = read_keys(path)
    assert kept.sha256 == digest_of(key.encode())
    assert (kept.scopes, kept.rate) == (("read", "write"), 50)
    assert kept.expires is not None
    assert (kept.expires - kept.created).days in (8, 9)
    listed = keys("list")
    assert "shop: read, write; 50 a second" in listed
    assert key not in path.read_text() + listed


# ---- The keys of a running service


def added(path: Path, name: str) -> bytes:
    key = new_key(name)
    add_key(path, record(name, key, ["read"]))
    return bearer(key)


@contextmanager
def failing(call: Literal["stat", "read_bytes"], code: int) -> Iterator[None]:
    """While this lasts, this call of every path fails."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, call, fail)
        yield


@pytest.mark.fault(47)
def test_without_a_file_it_is_open_says_so_once_and_knows_the_admin_key(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keyring(path, ADMIN_KEY)
    assert keys.is_open
    found = keys.find(bearer(ADMIN_KEY))
    assert found is not None
    assert found.scopes == ("admin", "rules")
    assert keys.find(bearer(ADMIN_KEY + "s")) is None
    (said,) = caplog.messages
    assert "open to all" in said
    assert "turret keys new" in said


def test_keys_come_and_go_with_the_next_check_and_none_opens_a_service_that_had_some(path: Path) -> None:
    keys = Keyring(path, ADMIN_KEY)
    assert keys.is_open
    first, second = added(path, "first"), added(path, "second")
    keys.load()
    assert not keys.is_open
    assert keys.find(first)
    remove_key(path, "first")
    keys.load()
    assert not keys.find(first)
    assert keys.find(second)
    remove_key(path, "second")
    for ring in (keys, Keyring(path, ADMIN_KEY)):
        ring.load()
        assert not ring.is_open
        assert not ring.find(second)


@pytest.mark.parametrize(
    "make",
    [None, lambda path: path.symlink_to("nothing"), os.mkfifo, Path.mkdir],
    ids=["nothing", "a dangling link", "a pipe", "a folder"],
)
def test_only_the_lack_of_the_file_itself_starts_open(
    path: Path, make: Callable[[Path], None] | None
) -> None:
    """And not even that where keys are required."""
    if make is not None:
        make(path)
    words = r"keys\.json can't be read: .*; (put|restore|make)" if make else "turret keys new"
    with pytest.raises(ServiceError, match=words):
        Keyring(path, ADMIN_KEY, required=make is None)


@pytest.mark.parametrize("damage", ["text", "length", "gone", errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_file_that_can_not_be_read_keeps_what_was_read_and_is_complained_of_once(
    path: Path, caplog: pytest.LogCaptureFixture, damage: str | int
) -> None:
    """The next one that can be read counts, with the revocation in it."""
    key, revoked = added(path, "shop"), added(path, "revoked")
    keys = Keyring(path, ADMIN_KEY)
    remove_key(path, "revoked")
    whole = path.read_bytes()
    with failing("read_bytes", damage) if isinstance(damage, int) else nullcontext():
        if damage == "text":
            path.write_text("{")
        elif damage == "length":
            os.truncate(path, 10_000_000)
        elif damage == "gone":
            path.unlink()
        for _ in range(3):
            keys.load()
            assert keys.find(key)
            assert keys.find(revoked)
    assert not keys.is_open
    (warning,) = caplog.messages
    assert str(path) in warning
    assert "stay valid" in warning
    path.write_bytes(whole)
    keys.load()
    assert keys.find(key)
    assert not keys.find(revoked)


def test_an_open_service_closes_when_a_file_is_there_that_it_can_not_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the operator made the first key as another user. A lack of descriptors closes nothing."""
    keys = Keyring(path, ADMIN_KEY)
    with failing("read_bytes", errno.EMFILE):
        keys.load()
    assert keys.is_open
    key = added(path, "shop")
    with failing("read_bytes", errno.EACCES):
        keys.load()
    assert not keys.is_open
    assert not keys.find(key)
    assert "Permission denied; put a file there" in caplog.messages[-1]
    keys.load()
    assert keys.find(key)


@pytest.mark.fault(67)
@pytest.mark.parametrize("code", [errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.EIO, errno.EMFILE])
def test_an_open_service_that_can_not_look_refuses_until_it_can(
    path: Path, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """Nothing proves that there is a file, so nothing is closed for good."""
    keys = Keyring(path, ADMIN_KEY)
    caplog.clear()
    for times in (1, 2):
        with failing("stat", code):
            for _ in range(3):
                keys.load()
                assert not keys.is_open
                assert keys.find(bearer(ADMIN_KEY))
        assert len(caplog.messages) == times
        assert os.strerror(code) in caplog.messages[-1]
        assert str(path) in caplog.messages[-1]
        keys.load()
        assert keys.is_open


# ---- The admin key


@pytest.mark.parametrize("name", ["admin.key", "elsewhere.key"])
def test_a_key_is_made_once_for_its_owner_unless_the_environment_has_one(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    elsewhere: dict[str, Any] = {} if name == "admin.key" else {"admin_key_file": file}
    settings = Settings(bundles=tmp_path, **elsewhere)
    key = admin_key(settings)
    assert admin_key(settings) == file.read_text().strip() == key
    assert len(key) >= 32
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TURRET_ADMIN_KEY", ADMIN_KEY)
    assert admin_key(Settings(bundles=tmp_path)) == ADMIN_KEY
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


@pytest.mark.fault(46)
@pytest.mark.parametrize("place", ["environment", "file"])
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "fewer than 32"),
        ("thirty-one-characters-are-short", "fewer than 32"),
        ("a blank is in these 33 characters", "a blank"),
        ("á-letter-in-these-32-characters-", "outside ASCII"),
    ],
)
def test_an_admin_key_that_could_be_guessed_is_refused_at_the_start_and_not_shown(
    tmp_path: Path, key: str, words: str, place: str
) -> None:
    (tmp_path / "admin.key").write_text(f"{key}\n")
    (tmp_path / "admin.key").chmod(0o600)
    settings = Settings(bundles=tmp_path, admin_key=SecretStr(key) if place == "environment" else None)
    way_out = "openssl rand -hex 32" if place == "environment" else "delete it for a new key"
    with pytest.raises(ServiceError, match=f"{words}.*{way_out}") as caught:
        admin_key(settings)
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.chmod(0o644), r"open to other users \(mode 0644\)"),
        (lambda file: file.chmod(0o620), r"open to other users \(mode 0620\)"),
        (lambda file: os.chown(file, 12345, -1), "belongs to user 12345"),
        (lambda file: file.symlink_to(file.rename(file.with_name("target"))), "TURRET_ADMIN_KEY"),
    ],
)
def test_a_file_that_others_may_have_written_is_refused_at_once(
    tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    settings = Settings(bundles=tmp_path)
    admin_key(settings)
    if words.startswith("belongs"):
        require("root")
    change(tmp_path / "admin.key")
    with pytest.raises(ServiceError, match=words):
        admin_key(settings)
