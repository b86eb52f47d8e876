"""Two hundred deaths under writes: what was acknowledged is there, once."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from tests.support.service_process import Process, plain_client

ROUNDS, WHOLE_EVERY = 200, 10
WRITERS, EVENTS_A_CALL = 4, 3
USERS = 200


class Writer(threading.Thread):
    """Sends events one call after the other, each until it is acknowledged, as a careful client does."""

    def __init__(self, number: int, address: list[str], stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}")
        self.number = number
        self.address = address  # of one entry, which changes when the service starts anew
        self.stop = stop
        self.acknowledged: dict[str, str] = {}
        self.sent = 0
        self.resent = 0

    def run(self) -> None:
        with plain_client(timeout=5) as client:
            while not self.stop.is_set():
                events = [self._event() for _ in range(EVENTS_A_CALL)]
                while not self._acknowledged(client, events):
                    self.resent += 1
                    time.sleep(0.005)
                    if self.stop.is_set():
                        return
                self.acknowledged |= {event["event_id"]: event["user_id"] for event in events}

    def _event(self) -> dict[str, str]:
        self.sent += 1
        name = f"{self.number}-{self.sent}"
        return {"event_id": name, "user_id": f"user-{self.sent % USERS}", "item_id": "101"}

    def _acknowledged(self, client: httpx2.Client, events: list[dict[str, str]]) -> bool:
        try:
            answer = client.post(f"{self.address[0]}/v1/events", json={"events": events})
        except httpx2.HTTPError:
            return False
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200


def workers_of(pid: int) -> list[int]:
    """The processes that a supervisor has forked."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found]


@pytest.mark.fault(12)
@pytest.mark.fault(25)
def test_no_acknowledged_event_is_lost_or_doubled_by_sigkill_at_random_moments(
    bundles: Path, thorough: bool
) -> None:
    chance, rounds = random.Random(0), ROUNDS if thorough else 2 * WHOLE_EVERY
    service = Process(bundles, workers=2)
    address, stop = [service.urls[0]], threading.Event()
    writers = [Writer(number, address, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        for number in range(rounds):
            time.sleep(chance.uniform(0.01, 0.15))
            if number % WHOLE_EVERY == 0:  # all of it, workers included
                service.process.send_signal(signal.SIGKILL)
                service.close()
                service = Process(bundles, workers=2)
                address[0] = service.urls[0]
            elif workers := workers_of(service.process.pid):
                os.kill(chance.choice(workers), signal.SIGKILL)
        time.sleep(1)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    acknowledged = {name: user for writer in writers for name, user in writer.acknowledged.items()}
    assert len(acknowledged) > rounds, "the writers got too little done for this to show anything"
    assert sum(writer.resent for writer in writers) > rounds / 10, "no call was cut off"
    stored = stored_events(service, {f"user-{number}" for number in range(USERS)})
    service.close()
    assert [name for name in acknowledged if name not in stored] == []
    assert [name for name, count in stored.items() if count > 1] == []
    # What was not acknowledged may be there, but nothing that nobody sent.
    most = {f"{writer.number}-{number + 1}" for writer in writers for number in range(writer.sent)}
    assert set(stored) <= most


def stored_events(service: Process, users: set[str]) -> Counter[str]:
    """How often each event is stored."""
    found: Counter[str] = Counter()
    for user in sorted(users):
        answer = service.client.get(f"/v1/users/{user}").json()
        assert answer["total"] == len(answer["events"]), "more than an answer shows: take more users"
        found.update(event["event_id"] for event in answer["events"])
    return found
