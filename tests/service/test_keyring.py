import os
from pathlib import Path
from typing import Any

import pytest

from service.errors import ServiceError
from service.key_file import add_key, remove_key
from service.keyring import Keyring
from service.keys import new_key, record


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def complaints() -> list[str]:
    return []


def ring(path: Path, clock: Clock, complaints: list[str]) -> Keyring:
    return Keyring(path, "admin", clock=clock, complain=complaints.append)


def keep(path: Path, name: str) -> bytes:
    key = new_key(name)
    add_key(path, record(name, key, ["read"]))
    return f"Bearer {key}".encode()


def test_without_a_file_it_is_open_and_knows_the_admin_key(
    path: Path, clock: Clock, complaints: list[str]
) -> None:
    keys = ring(path, clock, complaints)
    assert keys.is_open
    found = keys.find(b"Bearer admin")
    assert found is not None
    assert found.scopes == {"admin"}
    assert keys.find(b"Bearer admins") is None


def test_an_admin_key_may_look_like_any_other(path: Path, clock: Clock) -> None:
    assert Keyring(path, "turret_x_y", clock=clock).find(b"Bearer turret_x_y")


def test_a_new_key_counts_and_a_revoked_one_does_not_within_a_second(
    path: Path, clock: Clock, complaints: list[str]
) -> None:
    first = keep(path, "first")
    keys = ring(path, clock, complaints)
    assert not keys.is_open
    second = keep(path, "second")
    remove_key(path, "first")
    assert keys.find(first)
    clock.now = 1.0
    assert keys.find(second)
    assert not keys.find(first)
    assert not complaints


def test_the_doors_close_when_a_file_appears(path: Path, clock: Clock, complaints: list[str]) -> None:
    keys = ring(path, clock, complaints)
    key = keep(path, "shop")
    clock.now = 1.0
    assert keys.find(key)
    assert not keys.is_open


def test_revoking_the_last_key_opens_nothing(path: Path, clock: Clock, complaints: list[str]) -> None:
    key = keep(path, "shop")
    remove_key(path, "shop")
    keys = ring(path, clock, complaints)
    assert not keys.is_open
    assert not keys.find(key)


@pytest.mark.parametrize("damage", ["text", "gone"])
def test_a_damaged_file_keeps_what_was_read_and_is_complained_of_once(
    path: Path, clock: Clock, complaints: list[str], damage: str
) -> None:
    key = keep(path, "shop")
    keys = ring(path, clock, complaints)
    if damage == "text":
        path.write_text("{")
    else:
        path.unlink()
    for clock.now in (1.0, 2.0, 3.0):
        assert keys.find(key)
    assert not keys.is_open
    (complaint,) = complaints
    assert str(path) in complaint
    assert "go on counting" in complaint
    other = path.with_name("new.json")
    fresh = keep(other, "other")
    os.replace(other, path)
    clock.now = 4.0
    assert keys.find(fresh)
    assert not keys.find(key)


def test_the_file_is_looked_at_once_a_second(
    path: Path, clock: Clock, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ring(path, clock, complaints)
    looks: list[object] = []
    stat = os.stat

    def counted(*given: Any, **named: Any) -> os.stat_result:
        looks.append(given)
        return stat(*given, **named)

    monkeypatch.setattr(os, "stat", counted)
    for step in range(31):
        clock.now = step / 10
        keys.find(None)
    assert len([one for one in looks if one == (path,)]) == 3


def test_required_keys_must_be_there(path: Path) -> None:
    with pytest.raises(ServiceError, match="turret keys new"):
        Keyring(path, "admin", required=True)


def test_a_file_that_is_damaged_from_the_start_is_refused(path: Path) -> None:
    path.write_text("[]")
    with pytest.raises(ServiceError, match=r"keys\.json"):
        Keyring(path, "admin")
