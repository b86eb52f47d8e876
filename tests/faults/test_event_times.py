"""Fault 24: events twice, out of order, from the future and from long ago, and a clock that jumps."""

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.sending import acknowledged, event, recommended, send, stored, until
from tests.support.service_process import Process, Start

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
TEN_YEARS = 10 * 365 * 86_400


def times(service: Process) -> dict[str, datetime]:
    answer = service.client.get("/v1/users/7")
    assert answer.status_code == 200, answer.text
    events = answer.json()["events"]
    return {one["event_id"]: datetime.fromisoformat(one["time"]) for one in events}


@pytest.mark.fault(24)
@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_twice_and_out_of_order(start: Start, store: str) -> None:
    """An event counts once, whatever comes later under its id; the order is that of the times."""
    service = start(**({"store": "memory://"} if store == "memory" else {}))
    now = time.time()
    order = [5, 1, 4, 2, 3, 0]
    for place in order:
        assert acknowledged(service, event(f"{place}", item=101 + place, time=now - 60 + place))
    again = [event(f"{place}", item=150, time=now - 90) for place in range(6)]
    assert send(service, *again).json() == {"stored": 0, "duplicates": 6}
    assert stored(service) == [f"{place}" for place in range(6)]
    body = {"history": [101 + place for place in range(6)], "k": 5}
    assert recommended(service)["items"] == service.client.post("/v1/recommend", json=body).json()["items"]


@pytest.mark.fault(24)
def test_from_the_future_and_from_long_ago(start: Start) -> None:
    """A wrong clock's event counts as now, so that it isn't the newest for years."""
    service = start()
    now = time.time()
    sent = [event("year 9999", time="9999-12-31"), event("year 1", time="0001-01-02")]
    sent += [event("a minute ahead", time=now + 60), event("1970", time=0), event("1966", time=-1e8)]
    assert send(service, *sent).json() == {"stored": 5, "duplicates": 0, "clamped": 3}
    found = times(service)
    assert abs(found["year 9999"].timestamp() - now) < 30
    assert abs(found["a minute ahead"].timestamp() - now - 60) < 0.01
    assert {found[name].timestamp() for name in ("year 1", "1970", "1966")} == {0}
    assert stored(service) == ["year 1", "1970", "1966", "year 9999", "a minute ahead"]
    # By its own time, an event of two minutes ahead is the newest; it wouldn't be beside the year 9999.
    assert acknowledged(service, event("two minutes ahead", time=now + 120))
    assert stored(service)[-1] == "two minutes ahead"


@pytest.mark.fault(24)
def test_what_is_older_than_it_is_kept_is_said(start: Start) -> None:
    service = start(keep_days=30)
    now = time.time()
    sent = [event("old", time=now - 31 * 86_400), event("young", time=now - 29 * 86_400)]
    assert send(service, *sent).json() == {"stored": 1, "duplicates": 0, "expired": 1}
    assert stored(service) == ["young"]


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the seconds by which the clock of what is started is ahead; monotonic clocks are left."""
    if FAKETIME is None:
        pytest.skip("libfaketime isn't installed (.ci/run installs it: apt-get install faketime)")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    faked: dict[str, object] = {
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_NO_CACHE": 1,
        "DONT_FAKE_MONOTONIC": 1,
    }
    # Else libfaketime moves the moments until which threads wait for each other, though they are monotonic.
    faked["FAKETIME_FORCE_MONOTONIC_FIX"] = 0
    for name, value in {**faked, "LD_PRELOAD": FAKETIME}.items():
        monkeypatch.setenv(name, str(value))
    return clock


@pytest.mark.fault(24)
def test_a_clock_that_jumps(start: Start, clock: Path) -> None:
    """Ten years ahead and back: requests go on, and what has no time gets that of the clock."""
    service = start()
    assert acknowledged(service, event("before"))
    for jump, name in ((TEN_YEARS, "ahead"), (-TEN_YEARS, "behind"), (0, "back")):
        clock.write_text(f"{jump:+d}\n")
        begun = time.monotonic()
        for place in range(20):
            assert acknowledged(service, event(f"{name} {place}"))
            assert recommended(service)["degraded"] == []
        assert time.monotonic() - begun < 10
        assert service.client.get("/readyz").status_code == 200
    found = times(service)
    offsets = {name: round((found[name].timestamp() - time.time()) / TEN_YEARS) for name in found}
    # That the clock did jump is seen in the times of events that were sent without one.
    assert [offsets[name] for name in ("before", "ahead 0", "behind 0", "back 0")] == [0, 1, -1, 0]
    assert len(found) == 61
    assert list(found.values()) == sorted(found.values())


@pytest.mark.nightly
@pytest.mark.fault(24)
def test_a_breaker_opens_and_closes_by_a_clock_that_does_not_jump(
    start: Start, clock: Path, bundles: Path
) -> None:
    """By one that is set it would stay open for ten years here."""
    service = start(write_timeout=0.3, history_timeout=10, breaker_failures=1, breaker_seconds=0.5)
    with closing(sqlite3.connect(bundles.parent / "history.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not acknowledged(service, event("locked"))
        clock.write_text(f"{-TEN_YEARS:+d}\n")
        begun = time.monotonic()
        assert not acknowledged(service, event("locked"))
        assert time.monotonic() - begun < 0.3
        other.execute("ROLLBACK")
    until(lambda: acknowledged(service, event("after")), 10)
    assert datetime.now(UTC).year - times(service)["after"].year >= 9
