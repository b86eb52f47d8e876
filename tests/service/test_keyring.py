"""The keys of a running service: a change of their file counts within a second, and no fault opens it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from turret.service.auth.keyring import Keyring
from turret.service.errors import ServiceError
from turret.service.keys.key_file import add_key, remove_key
from turret.service.keys.keys import new_key, record
from turret.service.shared_state import SharedState


class Watched:
    """The file of a service's keys, with a clock, and what was complained of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complaints: list[str] = []
        self.now = 0.0

    def ring(self, shared_state: SharedState | None = None) -> Keyring:
        return Keyring(
            self.path,
            "admin",
            shared_state=shared_state,
            clock=lambda: self.now,
            warn=self.complaints.append,
        )

    def keep(self, name: str) -> bytes:
        """Add a key, and give the header with it."""
        key = new_key(name)
        add_key(self.path, record(name, key, ["read"]))
        return f"Bearer {key}".encode()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "keys.json")


@contextmanager
def failing(name: str, code: int) -> Iterator[None]:
    """While this lasts, a function of `os` fails."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, fail)
        yield


# ---- Changes of the file


def test_without_a_file_it_is_open_says_so_and_knows_the_admin_key(watched: Watched) -> None:
    keys = watched.ring()
    assert keys.is_open
    found = keys.find(b"Bearer admin")
    assert found is not None
    assert found.scopes == ("admin",)
    assert keys.find(b"Bearer admins") is None
    (said,) = watched.complaints
    assert "open to all" in said
    assert "turret keys new" in said


def test_an_admin_key_may_look_like_any_other(watched: Watched) -> None:
    assert Keyring(watched.path, "turret_x_y").find(b"Bearer turret_x_y")


def test_a_new_key_counts_and_a_revoked_one_does_not_within_a_second(watched: Watched) -> None:
    first = watched.keep("first")
    keys = watched.ring()
    assert not keys.is_open
    second = watched.keep("second")
    remove_key(watched.path, "first")
    assert keys.find(first)
    watched.now = 1.0
    assert keys.find(second)
    assert not keys.find(first)
    assert not watched.complaints


def test_the_doors_close_when_a_file_appears(watched: Watched) -> None:
    keys = watched.ring()
    key = watched.keep("shop")
    watched.now = 1.0
    assert keys.find(key)
    assert not keys.is_open


def test_revoking_the_last_key_opens_nothing(watched: Watched) -> None:
    key = watched.keep("shop")
    remove_key(watched.path, "shop")
    keys = watched.ring()
    assert not keys.is_open
    assert not keys.find(key)


@pytest.mark.parametrize("damage", ["text", "gone"])
def test_a_damaged_file_keeps_what_was_read_and_is_complained_of_once(watched: Watched, damage: str) -> None:
    key = watched.keep("shop")
    keys = watched.ring()
    if damage == "text":
        watched.path.write_text("{")
    else:
        watched.path.unlink()
    for watched.now in (1.0, 2.0, 3.0):
        assert keys.find(key)
    assert not keys.is_open
    (complaint,) = watched.complaints
    assert str(watched.path) in complaint
    assert "stay valid" in complaint
    other = Watched(watched.path.with_name("new.json"))
    fresh = other.keep("other")
    os.replace(other.path, watched.path)
    watched.now = 4.0
    assert keys.find(fresh)
    assert not keys.find(key)


def test_a_file_that_is_replaced_by_one_of_the_same_size_and_times_is_read_again(watched: Watched) -> None:
    key, other = watched.keep("shop"), Watched(watched.path.with_name("other.json"))
    other.keep("shop")
    keys = watched.ring()
    stamp = watched.path.stat()
    watched.path.write_bytes(other.path.read_bytes())
    os.utime(watched.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (watched.path.stat().st_size, watched.path.stat().st_ino) == (stamp.st_size, stamp.st_ino)
    watched.now = 1.0
    assert not keys.find(key)


# ---- The start


def test_required_keys_must_be_there(watched: Watched) -> None:
    with pytest.raises(ServiceError, match="turret keys new"):
        Keyring(watched.path, "admin", required=True)


def test_a_file_that_is_damaged_from_the_start_is_refused(watched: Watched) -> None:
    watched.path.write_text("[]")
    with pytest.raises(ServiceError, match=r"keys\.json"):
        watched.ring()


@pytest.mark.parametrize(
    "kind", ["link to nothing", "link to itself", "folder is a file", "no folder", "pipe", "folder"]
)
def test_only_the_lack_of_the_file_itself_starts_open(watched: Watched, kind: str) -> None:
    path = watched.path
    if kind == "link to nothing":
        path.symlink_to("nothing")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "no folder":
        watched.path = path.parent / "none" / "keys.json"
    else:
        path.write_text("{}")
        watched.path = path / "keys.json"
    with pytest.raises(ServiceError, match=r"keys\.json can't be read: .*; (put|restore|make)"):
        watched.ring()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ENOTDIR, errno.ELOOP])
def test_a_file_that_can_not_be_looked_for_is_no_missing_file(watched: Watched, code: int) -> None:
    with failing("open", code), pytest.raises(ServiceError, match=os.strerror(code)):
        watched.ring()


def test_a_service_that_had_keys_does_not_start_open_later(watched: Watched) -> None:
    watched.keep("shop")
    watched.ring()
    watched.path.unlink()
    with pytest.raises(ServiceError, match=r"keys\.json is missing, and keys\.json\.required beside it"):
        watched.ring()
    watched.path.with_name("keys.json.required").unlink()
    assert watched.ring().is_open


def test_where_nothing_can_be_written_keys_count_all_the_same(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    key = watched.keep("shop")
    monkeypatch.setattr(Path, "touch", fail)
    assert watched.ring().find(key)


# ---- Faults of the system


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ENOMEM])
def test_a_read_that_failed_is_tried_again_and_said_once(watched: Watched, code: int) -> None:
    """The revocation that it should have seen counts as soon as the file can be read."""
    first, second = watched.keep("first"), watched.keep("second")
    keys = watched.ring()
    remove_key(watched.path, "first")
    with failing("open", code):
        for watched.now in (1.0, 2.0, 3.0):
            assert keys.find(first)
    (said,) = watched.complaints
    assert os.strerror(code) in said
    watched.now = 4.0
    assert not keys.find(first)
    assert keys.find(second)


def test_an_open_service_closes_when_a_file_is_there_that_it_can_not_read(watched: Watched) -> None:
    """As when the operator made the first key as another user."""
    keys = watched.ring()
    key = watched.keep("shop")
    watched.now = 1.0
    with failing("open", errno.EACCES):
        assert not keys.admits_all()
        assert not keys.find(key)
    assert "Permission denied; put a file there" in watched.complaints[-1]
    watched.now = 2.0
    assert keys.find(key)


def test_an_open_service_without_descriptors_stays_open(watched: Watched) -> None:
    """Otherwise a client could lock out all others by opening many connections."""
    keys = watched.ring()
    watched.now = 1.0
    with failing("open", errno.EMFILE):
        assert keys.admits_all()


@pytest.mark.parametrize("code", [errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.EIO, errno.EMFILE])
def test_an_open_service_that_can_not_look_refuses_until_it_can(watched: Watched, code: int) -> None:
    """Nothing proves that there is a file, so nothing is closed for good."""
    shared_state = SharedState()
    keys = watched.ring(shared_state)
    watched.complaints.clear()
    with failing("stat", code):
        for watched.now in (1.0, 2.0, 3.0):
            assert not keys.admits_all()
            assert keys.find(b"Bearer admin")
    (said,) = watched.complaints
    assert os.strerror(code) in said
    assert str(watched.path) in said
    assert not shared_state.keys_required
    assert not watched.path.with_name("keys.json.required").exists()
    watched.now = 4.0
    assert keys.admits_all()
    watched.now = 5.0
    with failing("stat", code):
        assert not keys.admits_all()
    assert len(watched.complaints) == 2


@pytest.mark.fault(67)
def test_a_folder_that_is_a_file_for_a_while_closes_nothing_for_good(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    watched = Watched(folder / "keys.json")
    keys = watched.ring()
    folder.rename(tmp_path / "away")
    folder.write_text("")
    watched.now = 1.0
    keys.check(quietly=True)
    assert len(watched.complaints) == 1  # that it started open
    assert not keys.admits_all()
    watched.now = 2.0
    assert not keys.admits_all()
    assert "Not a directory" in watched.complaints[1]
    folder.unlink()
    (tmp_path / "away").rename(folder)
    watched.now = 3.0
    assert keys.admits_all()
    assert len(watched.complaints) == 2


# ---- Several processes


def test_what_one_process_has_seen_closes_all(watched: Watched) -> None:
    """At once, with the keys that it has seen, and for good."""
    shared_state = SharedState()
    one, other = watched.ring(shared_state), watched.ring(shared_state)
    assert one.admits_all()
    assert other.admits_all()
    watched.now = 1.0
    # It has looked just now, and would not look again within the second.
    other.check()
    key = watched.keep("shop")
    watched.now = 1.5
    assert not one.admits_all()
    assert not other.admits_all()
    assert other.find(key)
    watched.path.unlink()
    for watched.now in (2.0, 3.0):
        assert not one.admits_all()
        assert not other.admits_all()
        assert one.find(key)
