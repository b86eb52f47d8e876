"""Events that were acknowledged: through kills, damaged files, full disks and wrong clocks."""

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.service_calls import acknowledged, children, event, recommended, stored
from tests.support.service_process import Process, Start, plain_client
from tests.support.tools import missing, require
from tests.support.until import until

ROUNDS, QUICK_ROUNDS, WHOLE_EVERY = 200, 10, 5
WRITERS, EVENTS_A_CALL, USERS = 4, 3, 200


class Writer(threading.Thread):
    """Sends events one call after the other, each until it is acknowledged, as a careful client does."""

    def __init__(self, number: int, url: list[str], stop: threading.Event) -> None:
        super().__init__()
        self.number, self.stop = number, stop
        self.url = url  # of one entry, which changes when the service starts anew
        self.acknowledged: set[str] = set()
        self.sent = self.resent = 0

    def run(self) -> None:
        with plain_client() as client:
            while not self.stop.is_set():
                events = [self._event() for _ in range(EVENTS_A_CALL)]
                while not self._acknowledged(client, events):
                    self.resent += 1
                    if self.stop.wait(0.005):
                        return
                self.acknowledged |= {event["event_id"] for event in events}

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
    sent = {name for writer in writers for name in writer.acknowledged}
    assert sum(writer.resent for writer in writers) > 0, "no call was cut off"
    found: Counter[str] = Counter()
    for number in range(USERS):
        found.update(stored(service, f"user-{number}"))
    service.close()
    assert sent <= found.keys()
    assert [name for name, count in found.items() if count > 1] == []
    # What was not acknowledged may be there, but nothing that nobody sent.
    assert {*found} <= {f"{writer.number}-{one + 1}" for writer in writers for one in range(writer.sent)}


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
    require("root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        missing("root", f"a small file system can't be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


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
