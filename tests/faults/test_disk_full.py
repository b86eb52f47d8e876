"""Fault 10: the disk is full while events are saved."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.sending import acknowledged, event, recommended, stored, until
from tests.support.full_disk import small_disk
from tests.support.service_process import Process, Start

SMALL_FILES = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))"
QUICKLY = {"breaker_seconds": 0.2}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    with small_disk(tmp_path / "disk") as place:
        yield place


def fill(service: Process) -> tuple[set[str], set[str]]:
    """Send events of many users, three to a user, until some are refused; the users of either kind."""
    kept: set[str] = set()
    refused: set[str] = set()
    for number in range(5_000):
        user = f"user-{number}-{'x' * 300}"
        ok = acknowledged(service, *(event(f"{number}-{place}", user) for place in range(3)))
        (kept if ok else refused).add(user)
        if len(refused) >= 8:
            return kept, refused
    raise AssertionError("it was never full")


def check(service: Process, kept: set[str], refused: set[str]) -> None:
    """What was acknowledged is there as a whole, what was refused not at all, and answers go on."""
    for user in kept:
        assert len(stored(service, user)) == 3
    for user in refused:
        assert stored(service, user) == []
    answer = recommended(service, min(kept))
    assert (answer["degraded"], answer["items"][0]["source"]) == ([], "towers")


@pytest.mark.fault(10)
def test_on_a_full_disk_events_are_refused_and_answers_go_on(start: Start, disk: Path) -> None:
    """Also after a restart on the full disk; with room again, events are stored again."""
    store = f"sqlite:///{disk}/history.sqlite"
    (disk / "other").write_bytes(bytes(300_000))
    service = start(store=store, **QUICKLY)
    kept, refused = fill(service)
    check(service, kept, refused)
    service.process.kill()
    again = start(store=store, **QUICKLY)
    check(again, kept, refused)
    assert not acknowledged(again, *(event(f"big-{n}", f"{n}" * 100) for n in range(900)))
    (disk / "other").unlink()
    until(lambda: acknowledged(again, event("after", "after")))
    check(again, kept, refused)
    assert stored(again, "after") == ["after"]


@pytest.mark.fault(10)
def test_a_file_that_may_not_grow_is_a_full_disk(start: Start) -> None:
    """The same by a limit on the size of files, which needs no rights."""
    service = start(before=SMALL_FILES, **QUICKLY)
    check(service, *fill(service))
    assert service.stop()[0] == 0
