"""The guard of one connection under thousands of byte sequences, without sockets.

`TURRET_FUZZ_SEED` takes another seed, `TURRET_FUZZ_CASES` another number of cases; the clock is the loop's.
"""

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.service.fake_transport import Transport
from tests.support.virtual_time import run
from tests.support.wire_answers import MalformedAnswerError, WireAnswer, read_answers
from tests.support.wire_grammar import Case, Grammar, World
from tests.support.wire_productions import POOLS
from turret.service.http.admission import Admission
from turret.service.http.guard import FRAMING_BYTES, HEAD_BYTES, guarded
from turret.service.schemas.bodies import BODY
from turret.service.settings import Settings

SEED = int(os.environ.get("TURRET_FUZZ_SEED", "1511"))
CASES = int(os.environ.get("TURRET_FUZZ_CASES", "500"))
THOROUGH = 20  # times as many cases
READ = 65_536  # bytes that one read gives at most
LIMIT = 20_000  # of bodies
SECONDS = 100.0  # more than all deadlines of a connection, one after the other
WORLD = World(
    b'{"history": [1, 2]}', b'{"events": ["allowed"]}', b'{"events": ["forbidden"]}', b"Bearer right"
)


class Application:
    """Answers, and remembers what it ran that no request asked for."""

    def __init__(self) -> None:
        self.allowed = 0
        self.forbidden = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_probe = scope["path"] in ("/livez", "/readyz")  # which has no admission, and reads no body
        body = b"" if is_probe else scope[BODY]
        let_in = (b"authorization", WORLD.authorization) in scope["headers"]
        self.allowed += let_in and body == WORLD.allowed
        self.forbidden += let_in and body == WORLD.forbidden
        answer = b"x" * (50_000 if scope["path"] == "/openapi.json" else 200)
        headers = [(b"content-length", b"%d" % len(answer))]
        headers += [] if is_probe else [(b"x-body", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class Fuzz:
    """Drives cases, and notes which of them broke what."""

    def __init__(self) -> None:
        settings = Settings(body_limit=LIMIT)
        self.app = Application()
        self.admission = Admission(self.app, settings, lambda _: None)
        self.protocol = guarded(10, lambda _: None)

        async def numbered(scope: Any, receive: Any, send: Any) -> None:
            number = b"%d" % next(scope["state"]["numbers"])

            async def sending(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], (b"x-number", number)]}
                await send(message)

            await self.admission(scope, receive, sending)

        self.config = uvicorn.Config(
            numbered, ws="none", lifespan="off", log_config=None, log_level="critical"
        )
        self.broken: dict[str, list[tuple[Case, str]]] = defaultdict(list)
        self.statuses: Counter[int] = Counter()
        self.names: set[str] = set()

    async def run(self, cases: int) -> None:
        grammar = Grammar(SEED, WORLD)
        for _ in range(cases):
            case = grammar.case()
            self.names |= set(case.names)
            forbidden = self.app.forbidden
            await self.drive(case)
            if self.app.forbidden > forbidden:
                self.broken["forbidden"].append((case, "it was run"))

    async def drive(self, case: Case) -> None:
        transport, state = Transport(case.ending == "unread"), ServerState()
        connection: Any = self.protocol(self.config, state, {"numbers": count()})
        transport.protocol = connection
        connection.connection_made(transport)
        try:
            for segment in case.segments:
                for at in range(0, len(segment), READ):
                    await until(lambda: not transport.reading_paused or transport.closing)
                    if transport.reading_paused or transport.closing:
                        break
                    connection.data_received(segment[at : at + READ])
                    if len(connection.headers or ()) * 3 > HEAD_BYTES + FRAMING_BYTES:
                        self.broken["held"].append((case, "header lines are kept"))
            await until(lambda: not state.tasks)
            if case.ending == "reset":
                transport.lose(ConnectionResetError())
            elif case.ending == "half" and not transport.closing and not connection.eof_received():
                transport.close()
        except Exception as error:  # in the loop it might end the watch over all connections
            self.broken["raised"].append((case, repr(error)))
        for _ in range(4):
            if not transport.lost or state.tasks:
                await asyncio.sleep(SECONDS)
        self.check(case, transport)

    def check(self, case: Case, transport: Transport) -> None:
        if not transport.lost:
            self.broken["ended"].append((case, "no deadline ends it"))
        if self.admission.held_bytes or any(lane.running for lane in self.admission.lanes.values()):
            self.broken["places"].append((case, str(self.admission.lanes)))
            self.admission.__init__(self.app, Settings(body_limit=LIMIT), lambda _: None)  # type: ignore[misc]  # for the next case
        try:
            answers = read_answers(bytes(transport.written), case.methods, case.ending != "wait")
        except MalformedAnswerError as error:
            self.broken["answers"].append((case, str(error)))
        else:
            self.check_answers(case, answers)

    def check_answers(self, case: Case, answers: list[WireAnswer]) -> None:
        self.statuses.update(one.status for one in answers)
        if any(one.status >= 500 and one.status != 503 for one in answers):
            self.broken["fault"].append((case, str(answers)))
        if case.bodies is not None and case.ending == "wait":
            read = [int(one.headers[b"x-body"]) if b"x-body" in one.headers else None for one in answers]
            complete = len(read) == len(case.bodies) or answers[-1].headers.get(b"connection") == b"close"
            wrong = [
                (length, found)
                for length, found in zip(case.bodies, read, strict=False)
                if found is not None and found != length
            ]
            if not complete or wrong:
                self.broken["valid"].append((case, f"bodies of {case.bodies} bytes were read as {read}"))
        # What could not be read has an answer of its own, without a number, behind all others.
        numbers = [one.headers.get(b"x-number") for one in answers]
        given = [number for number in numbers if number is not None]
        if given != [b"%d" % place for place in range(len(given))] or None in numbers[:-1]:
            self.broken["order"].append((case, f"answers {numbers}"))


async def until(true: Callable[[], bool], turns: int = 60) -> None:
    """Let the loop turn until something is true, or for so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
        if true():
            return


@pytest.mark.fault(39, 40)
def test_no_sequence_of_bytes_breaks_the_invariants_of_a_connection(thorough: bool) -> None:
    """No exception, no endless connection, no lost or doubled answer, no request that the bytes only hide."""
    cases, fuzz = CASES * THOROUGH if thorough else CASES, Fuzz()
    run(fuzz.run(cases))
    shown = [
        f"{oracle}: {len(found)} cases, such as {case.number} {case.names} {case.ending}: {reason[:300]}"
        for oracle, found in fuzz.broken.items()
        for case, reason in found[:1]
    ]
    assert not shown, f"seed {SEED}, {cases} cases: " + "; ".join(shown)
    assert fuzz.names >= {name for pool in POOLS for name in pool}
    assert fuzz.app.allowed > cases / 50
    assert {200, 400, 413, 415, 431} <= fuzz.statuses.keys()
