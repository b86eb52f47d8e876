"""Raw bytes, valid and nearly so, at the real process: what holds while they come, and after them.

Cases come from the grammar of `tests/support/wire_grammar.py`. The seed is printed; `TURRET_FUZZ_SEED`
takes another, `TURRET_FUZZ_SECONDS` another time.
"""

import asyncio
import json
import os
import socket
import struct
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.service_calls import address, anew, children, peak, resident
from tests.support.service_process import Process, Start, deadlines
from tests.support.until import until
from tests.support.wire_answers import MalformedAnswerError, WireAnswer, read_answers
from tests.support.wire_grammar import Case, Grammar, World
from tests.support.wire_productions import POOLS
from turret.service.keys.keys import add_key, new_key, record

SEED = int(os.environ.get("TURRET_FUZZ_SEED", "1511"))
SECONDS = float(os.environ.get("TURRET_FUZZ_SECONDS", "20"))
CONNECTIONS = 48  # at once
# Far longer than the deadlines below, one after the other: a connection that takes so long hangs.
HANG_SECONDS = 60.0
BODY_SECONDS = 1.0
SETTINGS: dict[str, Any] = {
    "workers": 2,
    "before": deadlines(head=0.6, body=BODY_SECONDS, send=1.0),
    "keep_alive_seconds": 1,
}
# Over idle: buffers of 48 connections, a few hundred kilobytes each, and what the allocator keeps of them.
MEMORY_BYTES = 64_000_000
ANSWERED = ("recommendation", "event")
ALLOWED, FORBIDDEN = "allowed", "forbidden"


def stored(event_id: str) -> bytes:
    event = {"event_id": event_id, "user_id": event_id, "item_id": 101}
    return json.dumps({"events": [event]}).encode()


class Fuzz:
    """Sends cases at a service for some seconds, and notes which of them broke what."""

    def __init__(self, service: Process, key: str) -> None:
        self.place = address(service)
        ask = json.dumps({"history": [101, 102], "k": 3}).encode()
        bearer = f"Bearer {key}".encode()
        self.grammar = Grammar(SEED, World(ask, stored(ALLOWED), stored(FORBIDDEN), bearer))
        self.broken: dict[str, list[str]] = defaultdict(list)
        self.names: set[str] = set()
        self.statuses: set[int] = set()
        self.cases = 0
        self.end = 0.0

    async def run(self) -> None:
        self.end = time.monotonic() + SECONDS
        await asyncio.gather(*(self.connections() for _ in range(CONNECTIONS)))

    async def connections(self) -> None:
        while time.monotonic() < self.end:
            case = self.grammar.case()
            self.cases += 1
            self.names |= set(case.names)
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    received, is_late = await self.send(case)
            except TimeoutError:
                self.note("hang", case, f"not over after {HANG_SECONDS} s")
                continue
            except ConnectionError:  # reset by this side, or before a byte was sent
                continue
            self.check(case, received, is_late)

    async def send(self, case: Case) -> tuple[bytes, bool]:
        """Send what the case has, end as it says; gives what came back, and whether this side was slow."""
        with socket.create_connection(self.place) as connection:
            connection.setblocking(False)
            reading = asyncio.create_task(receive(connection, case.ending != "unread"))
            try:
                begun = time.monotonic()
                await self.write(case, connection)
                is_late = time.monotonic() > begun + BODY_SECONDS / 2
                return await reading, is_late
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def write(self, case: Case, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the service may end it at any time
            for segment in case.segments:
                async with asyncio.timeout(3):  # it may read no more until its answers are read
                    await loop.sock_sendall(connection, segment)
                await asyncio.sleep(0 if len(case.segments) > 20 else 0.002)
            if case.ending == "half":
                connection.shutdown(socket.SHUT_WR)
        if case.ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionResetError

    def check(self, case: Case, received: bytes, is_late: bool) -> None:
        try:
            answers = read_answers(received, case.methods, case.ending != "wait")
        except MalformedAnswerError as error:
            self.note("answers", case, str(error))
            return
        self.statuses |= {one.status for one in answers}
        if any(one.status >= 500 and one.status != 503 for one in answers):
            self.note("fault", case, str(answers))
        if case.bodies is not None and case.ending == "wait" and not is_late:
            complete = len(answers) == len(case.bodies) or closes(answers)
            wrong = any(b"not HTTP/1.1" in one.body for one in answers)
            if case.names[0] in ANSWERED and (not answers or answers[0].status not in (200, 503)):
                wrong = True
            if wrong or not complete:
                self.note("valid", case, str([one.status for one in answers]))

    def note(self, oracle: str, case: Case, reason: str) -> None:
        sent = b"".join(case.segments)
        self.broken[oracle].append(
            f"case {case.number} {case.names} {case.ending}: {reason[:300]}; {sent[:200]!r}"
        )


def closes(answers: list[WireAnswer]) -> bool:
    return bool(answers) and answers[-1].headers.get(b"connection") == b"close"


async def receive(connection: socket.socket, reads: bool) -> bytes:
    """All that comes until the end; a client that doesn't read gives up after a moment."""
    loop, received = asyncio.get_running_loop(), b""
    if not reads:
        await asyncio.sleep(0.5)
        return b""
    with suppress(OSError):
        while part := await loop.sock_recv(connection, 65_536):
            received += part
    return received


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            count += os.readlink(link).startswith("socket:")
    return count


def metrics(service: Process) -> dict[str, float]:
    lines = service.client.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line[0] != "#")
    return {name: float(value) for name, value in pairs}


def nothing_is_held(service: Process) -> bool:
    """No request runs but the one for these figures; each worker tells its own once in a moment."""
    found = metrics(service)
    lanes = sum(value for name, value in found.items() if name.startswith("turret_under_way"))
    return found["turret_held_bytes"] == 0 and found["turret_in_flight"] <= 1 and lanes <= 1


@pytest.mark.nightly
@pytest.mark.fault(39, 40)
def test_bytes_of_any_kind_get_answers_or_an_end_and_leave_nothing_behind(
    start: Start, bundles: Path
) -> None:
    key = new_key("fuzz")
    add_key(bundles.parent / "keys.json", record("fuzz", key, ("read", "write")))
    print(f"seed {SEED}, {SECONDS} s; TURRET_FUZZ_SEED and TURRET_FUZZ_SECONDS take others")
    service = start(**SETTINGS)
    bearer = {"Authorization": f"Bearer {key}"}
    for _ in range(20):  # each worker is warm
        assert anew(service, "POST", "/v1/recommend", json={"history": [101]}, headers=bearer).is_success
    workers = children(service.process.pid)
    idle = {pid: (resident(pid), sockets(pid)) for pid in workers}
    fuzz = Fuzz(service, key)
    asyncio.run(fuzz.run())
    # Well-formed answers, none of them a fault of the service, or a close; each within the deadlines.
    assert {oracle: found[:5] for oracle, found in fuzz.broken.items()} == {}, f"seed {SEED}"
    assert children(service.process.pid) == workers
    until(lambda: all(sockets(pid) <= idle[pid][1] for pid in workers), "all connections are closed")
    until(lambda: nothing_is_held(service), "nothing is held")
    assert max(peak(pid) - idle[pid][0] for pid in workers) < MEMORY_BYTES
    # Requests in bodies, extensions and trailers store nothing, nor do keys anywhere but in a head.
    users = [service.client.get(f"/v1/users/{one}", headers=bearer).json() for one in (ALLOWED, FORBIDDEN)]
    assert [user["total"] for user in users] == [1, 0]
    # Nothing is logged but what a client's key or size explains; anybody could fill the log otherwise.
    assert service.stop() == (0, "")
    assert fuzz.names >= {name for pool in POOLS for name in pool}, "the cases reach what they are to reach"
    assert fuzz.statuses >= {200, 400, 401, 404, 431}
