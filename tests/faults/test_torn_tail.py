"""Fault 25: the log of events ends in the middle of a record after a crash, or the file is damaged."""

import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.faults.sending import acknowledged, event, recommended, stored, until
from tests.support.redis_server import own_redis
from tests.support.service_process import Process, Start

BATCH = 5


def killed_while_writing(service: Process, kill: threading.Event, enough: int = 40) -> set[int]:
    """Send batches, a user each, from several threads until `kill` is done; those that were acknowledged."""
    done: set[int] = set()

    def write(first: int) -> None:
        for number in range(first, 100_000, 3):
            try:
                if acknowledged(service, *_batch(number)):
                    done.add(number)
            except httpx2.HTTPError:
                return
            if len(done) >= enough:
                kill.set()

    writers = [threading.Thread(target=write, args=(first,)) for first in range(3)]
    for writer in writers:
        writer.start()
    assert kill.wait(60)
    service.process.kill()
    for writer in writers:
        writer.join()
    return done


def _batch(number: int) -> list[dict[str, object]]:
    return [event(f"{number}-{place}", f"user-{number}", time=place) for place in range(BATCH)]


def check(service: Process, done: set[int]) -> None:
    """What was acknowledged is there; every other batch is there as a whole or not at all."""
    assert done
    for number in range(max(done) + 10):
        found = len(stored(service, f"user-{number}"))
        assert found == BATCH if number in done else found in (0, BATCH)
    assert recommended(service, f"user-{max(done)}")["degraded"] == []


@pytest.mark.fault(25)
@pytest.mark.parametrize("tail", ["as it was", "half a record", "noise", "zeros"])
def test_what_was_acknowledged_is_there_after_a_crash(start: Start, bundles: Path, tail: str) -> None:
    """With whatever the crash left behind the last whole record of the write-ahead log."""
    done = killed_while_writing(start(), threading.Event())
    log = bundles.parent / "history.sqlite-wal"
    written = log.read_bytes()
    frame = 24 + 4096
    rest = {
        "as it was": b"",
        "half a record": written[-frame : -frame // 2],
        "noise": random.Random(0).randbytes(3 * frame + 100),
        "zeros": bytes(frame + 10),
    }[tail]
    log.write_bytes(written + rest)
    again = start()
    check(again, done)
    assert acknowledged(again, event("after", "after"))
    assert stored(again, "after") == ["after"]


@pytest.mark.fault(25)
def test_a_log_that_lost_its_end_is_read_to_its_last_whole_record(start: Start, bundles: Path) -> None:
    """As where a disk said that it had written and hadn't: whole batches, and never a part of one."""
    done = killed_while_writing(start(), threading.Event())
    log = bundles.parent / "history.sqlite-wal"
    written = log.read_bytes()
    log.write_bytes(written[: len(written) // 2 + 1_001])
    again = start()
    counts = [len(stored(again, f"user-{number}")) for number in range(max(done) + 1)]
    assert set(counts) <= {0, BATCH}
    assert 0 < sum(counts) < BATCH * len(done)


@pytest.mark.fault(25)
def test_a_redis_that_crashed_with_a_torn_log(start: Start, tmp_path: Path) -> None:
    """It drops the torn end, and a call is one record there."""
    with own_redis(tmp_path / "redis") as redis:
        service = start(store=redis.address, breaker_seconds=0.2)
        done = {number for number in range(20) if acknowledged(service, *_batch(number))}
        redis.kill()
        (log,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
        whole = log.read_bytes()
        log.write_bytes(whole + whole[-200:-90].partition(b"*")[1] + b"3\r\n$3\r\nSET\r\n$9\r\nturr")
        redis.start()
        until(lambda: acknowledged(service, event("after", "after")))
        check(service, done)


@pytest.mark.fault(25)
def test_a_file_that_is_damaged_is_refused_at_the_start_in_words(start: Start, bundles: Path) -> None:
    service = start()
    assert acknowledged(service, *_batch(1))
    service.stop()
    path = bundles.parent / "history.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + random.Random(0).randbytes(5 * 4096))
    status, said = start().stop()
    assert status == 1
    assert "history store " in said
    assert "it is damaged: move it away" in said
    assert said.count("\n") == 1


@pytest.mark.fault(25)
def test_a_file_that_is_damaged_while_it_is_used_degrades_answers(
    start: Start, bundles: Path, tmp_path: Path
) -> None:
    """No user is shown what isn't theirs, and nobody gets a 500."""
    service = start()
    for first in range(0, 300, 20):
        events = [event(f"{n}-{'x' * 400}", f"user-{n}-{'y' * 400}") for n in range(first, first + 20)]
        assert acknowledged(service, *events)
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
    for number in range(300):
        user = f"user-{number}-{'y' * 400}"
        answer = recommended(service, user)
        degraded += answer["degraded"] == ["history"]
        shown = service.client.get(f"/v1/users/{user}")
        assert shown.status_code in (200, 503)
        if shown.status_code == 200:
            assert [one["item_id"] for one in shown.json()["events"]] in ([], [101])
    assert degraded > 100
    assert service.client.get("/readyz").status_code == 200
