"""Events that were acknowledged: through kills, damaged files, full disks and wrong clocks."""

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import httpx2
import pytest

from tests.support.full_disk import small_disk
from tests.support.service_calls import (
    acknowledged,
    children,
    event,
    recommended,
    stored,
)
from tests.support.service_process import Process, Start, plain_client
from tests.support.tools import require
from tests.support.until import until

ROUNDS, QUICK_ROUNDS, WHOLE_EVERY = 200, 10, 5
WRITERS, EVENTS_A_CALL, USERS = 4, 3, 200
BATCH = 5
TEN_YEARS = 10 * 365 * 86_400


class Writer(threading.Thread):
    """Sends events one call after the other, each until it is acknowledged, as a careful client does."""

    def __init__(self, number: int, url: list[str], stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}")
        self.number = number
        self.url = url  # of one entry, which changes when the service starts anew
        self.stop = stop
        self.acknowledged: dict[str, str] = {}
        self.sent = 0
        self.resent = 0

    def run(self) -> None:
        with plain_client() as client:
            while not self.stop.is_set():
                events = [self._event() for _ in range(EVENTS_A_CALL)]
                while not self._acknowledged(client, events):
                    self.resent += 1
                    if self.stop.wait(0.005):
                        return
                self.acknowledged |= {event["event_id"]: event["user_id"] for event in events}

    def _event(self) -> dict[str, str]:
        self.sent += 1
        name = f"{self.number}-{self.sent}"
        return {"event_id": name, "user_id": f"user-{self.sent % USERS}", "item_id": "101"}

    def _acknowledged(self, client: httpx2.Client, events: list[dict[str, str]]) -> bool:
        try:
            answer = client.post(f"{self.url[0]}/v1/events", json={"events": events})
        except httpx2.HTTPError:
            return False
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200


@pytest.mark.process
@pytest.mark.fault(12, 25)
def test_no_acknowledged_event_is_lost_or_doubled_by_sigkill_at_random_moments(
    bundles: Path, thorough: bool
) -> None:
    """The moments are counted in acknowledged events. `--thorough` kills two hundred times."""
    chance = random.Random(0)
    service = Process(bundles, workers=2)
    url, stop = [service.urls[0]], threading.Event()
    writers = [Writer(number, url, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()

    def until_more() -> None:
        most = sum(len(writer.acknowledged) for writer in writers) + chance.randrange(100)
        until(lambda: sum(len(writer.acknowledged) for writer in writers) > most, "events are acknowledged")

    try:
        for number in range(ROUNDS if thorough else QUICK_ROUNDS):
            until_more()
            if number % WHOLE_EVERY == WHOLE_EVERY - 1:  # all of it, workers included
                service.process.send_signal(signal.SIGKILL)
                service.close()
                service = Process(bundles, workers=2)
                url[0] = service.urls[0]
            elif workers := children(service.process.pid):
                os.kill(chance.choice(workers), signal.SIGKILL)
        until_more()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    sent = {name: user for writer in writers for name, user in writer.acknowledged.items()}
    assert sum(writer.resent for writer in writers) > 0, "no call was cut off"
    found: Counter[str] = Counter()
    for number in range(USERS):
        found.update(stored(service, f"user-{number}"))
    service.close()
    assert [name for name in sent if name not in found] == []
    assert [name for name, count in found.items() if count > 1] == []
    # What was not acknowledged may be there, but nothing that nobody sent.
    assert set(found) <= {
        f"{writer.number}-{number + 1}" for writer in writers for number in range(writer.sent)
    }


def killed_while_writing(service: Process) -> set[int]:
    """Send batches, a user each, from several threads, and kill it; the numbers that were acknowledged."""
    done: set[int] = set()

    def write(first: int) -> None:
        for number in range(first, 100_000, 3):
            try:
                if acknowledged(service, *batch(number)):
                    done.add(number)
            except httpx2.HTTPError:
                return

    writers = [threading.Thread(target=write, args=(first,)) for first in range(3)]
    for writer in writers:
        writer.start()
    until(lambda: len(done) >= 40, "forty batches are acknowledged")
    service.process.kill()
    for writer in writers:
        writer.join()
    return done


def batch(number: int) -> list[dict[str, object]]:
    return [event(f"{number}-{place}", f"user-{number}", time=place) for place in range(BATCH)]


def check_batches(service: Process, done: set[int]) -> None:
    """What was acknowledged is there; every other batch is there as a whole or not at all."""
    for number in range(max(done) + 10):
        found = len(stored(service, f"user-{number}"))
        assert found == BATCH if number in done else found in (0, BATCH)
    assert recommended(service, f"user-{max(done)}")["degraded"] == []


@pytest.mark.process
@pytest.mark.fault(25)
def test_what_was_acknowledged_is_there_after_a_crash(start: Start, bundles: Path) -> None:
    """With whatever the crash left behind the last whole record of the write-ahead log."""
    done = killed_while_writing(start())
    log, store = bundles.parent / "history.sqlite-wal", bundles.parent / "history.sqlite"
    written, database = log.read_bytes(), store.read_bytes()
    frame = 24 + 4096
    for name, tail in {
        "nothing": b"",
        "half a record": written[-frame : -frame // 2],
        "noise": random.Random(0).randbytes(3 * frame + 100),
    }.items():
        copied = bundles.parent / name / "history.sqlite"
        copied.parent.mkdir()
        copied.write_bytes(database)
        copied.with_name(log.name).write_bytes(written + tail)
        again = start(store=f"sqlite:///{copied}")
        check_batches(again, done)
        assert acknowledged(again, event("after", "after"))
        assert stored(again, "after") == ["after"]
        again.close()


@pytest.mark.nightly
@pytest.mark.fault(25)
def test_a_file_that_is_damaged_while_it_is_used_degrades_answers(start: Start, bundles: Path) -> None:
    """No user is shown what isn't theirs, and nobody gets a 500."""
    users = [f"user-{number}-{'y' * 400}" for number in range(300)]
    service = start()
    for first in range(0, 300, 20):
        assert acknowledged(service, *(event("x" * 400, u) for u in users[first : first + 20]))
    service.stop()
    path = bundles.parent / "history.sqlite"
    with closing(sqlite3.connect(path)) as whole:
        assert whole.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    service = start()
    assert stored(service, "nobody") == []
    size = path.stat().st_size
    with path.open("r+b") as damaged:
        damaged.seek(8 * 4096)
        damaged.write(random.Random(0).randbytes(size - 8 * 4096))
    degraded = 0
    for user in users:
        degraded += recommended(service, user)["degraded"] == ["history"]
        shown = service.client.get(f"/v1/users/{user}")
        assert shown.status_code in (200, 503)
        if shown.status_code == 200:
            assert [one["item_id"] for one in shown.json()["events"]] in ([], [101])
    assert degraded > 100
    assert service.client.get("/readyz").status_code == 200


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


def check_users(service: Process, kept: set[str], refused: set[str]) -> None:
    """What was acknowledged is there as a whole, what was refused not at all, and answers go on."""
    assert {len(stored(service, user)) for user in kept} == {3}
    assert [stored(service, user) for user in refused] == [[]] * len(refused)
    answer = recommended(service, min(kept))
    assert (answer["degraded"], answer["items"][0]["source"]) == ([], "towers")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    with small_disk(tmp_path / "disk") as place:
        yield place


@pytest.mark.process
@pytest.mark.fault(10)
def test_on_a_full_disk_events_are_refused_and_answers_go_on(start: Start, disk: Path) -> None:
    """Also after a restart on the full disk; with room again, events are stored again."""
    settings = {"store": f"sqlite:///{disk}/history.sqlite"}
    (disk / "other").write_bytes(bytes(300_000))
    service = start(**settings)
    kept, refused = fill(service)
    check_users(service, kept, refused)
    service.process.kill()
    again = start(**settings)
    check_users(again, kept, refused)
    assert not acknowledged(again, *(event(f"big-{n}", f"{n}" * 100) for n in range(900)))
    (disk / "other").unlink()
    until(lambda: acknowledged(again, event("after", "after")), "there is room again")
    check_users(again, kept, refused)
    assert stored(again, "after") == ["after"]


def times(service: Process) -> dict[str, datetime]:
    events = service.client.get("/v1/users/7").json()["events"]
    return {one["event_id"]: datetime.fromisoformat(one["time"]) for one in events}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the seconds by which the clock of what is started is ahead; monotonic clocks are left."""
    require("faketime")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    faked: dict[str, object] = {
        "LD_PRELOAD": next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")),
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_NO_CACHE": 1,
        "DONT_FAKE_MONOTONIC": 1,
        # Else libfaketime moves the moments until which threads wait for each other, though monotonic.
        "FAKETIME_FORCE_MONOTONIC_FIX": 0,
    }
    for name, value in faked.items():
        monkeypatch.setenv(name, str(value))
    return clock


@pytest.mark.nightly
@pytest.mark.fault(24)
def test_a_clock_that_jumps(start: Start, clock: Path) -> None:
    """Ten years ahead and back: requests go on, and what has no time gets that of the clock."""
    service = start()
    assert acknowledged(service, event("before"))
    for jump, name in ((TEN_YEARS, "ahead"), (-TEN_YEARS, "behind"), (0, "back")):
        clock.write_text(f"{jump:+d}\n")
        for place in range(20):
            assert acknowledged(service, event(f"{name} {place}"))
            assert recommended(service)["degraded"] == []
        assert service.client.get("/readyz").status_code == 200
    found = times(service)
    offsets = {name: round((found[name].timestamp() - time.time()) / TEN_YEARS) for name in found}
    # That the clock did jump is seen in the times of events that were sent without one.
    assert [offsets[name] for name in ("before", "ahead 0", "behind 0", "back 0")] == [0, 1, -1, 0]
    assert len(found) == 61
    assert list(found.values()) == sorted(found.values())
