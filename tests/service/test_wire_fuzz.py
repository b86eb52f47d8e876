"""The protocol of one connection under thousands of byte sequences, without sockets.

`TURRET_FUZZ_SEED` takes another seed, `TURRET_FUZZ_CASES` another number of cases; the clock is the loop's.
"""

import asyncio
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from itertools import chain, count
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.service.fake_transport import Transport
from tests.support.virtual_time import run
from tests.support.wire_answers import MalformedAnswerError, WireAnswer, read_answers
from tests.support.wire_grammar import Case, Grammar, World
from tests.support.wire_productions import POOLS
from turret.service.wire.admission import Admission
from turret.service.wire.connection_reaper import ConnectionReaper, Deadlines
from turret.service.wire.counted_protocol import FRAMING_BYTES, Guards
from turret.service.wire.protocol import guarded
from turret.service.wire.refusals import HEAD_BYTES

SEED = int(os.environ.get("TURRET_FUZZ_SEED", "1511"))
CASES = int(os.environ.get("TURRET_FUZZ_CASES", "500"))
THOROUGH = 20  # times as many cases
READ = 65_536  # bytes that one read gives at most
# A body up to uvicorn's high-water mark and one read beyond it, and a read's worth of heads, each kept twice.
HELD_BYTES = 4 * READ
# A head, and framing, that are too large by less than a read.
WITHOUT_YIELD = HEAD_BYTES + FRAMING_BYTES + READ
LIMIT = 100_000  # of the application, for bodies
WORLD = World(
    b'{"history": [1, 2]}', b'{"events": ["allowed"]}', b'{"events": ["forbidden"]}', b"Bearer right"
)

# Sequences that once broke something and are drawn too rarely.
CORPUS = (
    Case(0, ("no target",), (b"GET",), None, (b"CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n",), "unread"),
    Case(0, ("no port",), (b"GET",), None, (b"GET http://x:99999/ HTTP/1.1\r\nHost: x\r\n\r\n",), "unread"),
    Case(0, ("many",), (b"GET",) * 50, None, (b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n" * 50,), "wait"),
)


class Application:
    """Reads bodies, answers, and remembers what it ran that no request asked for."""

    def __init__(self) -> None:
        self.allowed = 0
        self.forbidden = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more and len(body) <= LIMIT:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message["body"]
            more = message["more_body"]
        number = next(scope["state"]["numbers"])
        let_in = (b"authorization", WORLD.authorization) in scope["headers"]
        self.allowed += let_in and body == WORLD.allowed
        self.forbidden += let_in and body == WORLD.forbidden
        answer = b"x" * (50_000 if scope["path"] == "/openapi.json" else 200)
        headers = [(b"content-length", b"%d" % len(answer)), (b"x-number", b"%d" % number)]
        headers.append((b"x-body", b"%d" % min(len(body), LIMIT)))
        await send({"type": "http.response.start", "status": 413 if more else 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


class Parser:
    """Stands before the real parser, and counts what it is fed."""

    def __init__(self, parser: Any, connection: Any) -> None:
        self._parser, self._connection = parser, connection

    def feed_data(self, data: bytes) -> None:
        connection = self._connection
        if connection.transport.is_closing():
            connection.fed_after_close = True
        connection.without_yield += len(data)
        self._parser.feed_data(data)
        connection.most_without_yield = max(connection.most_without_yield, connection.without_yield)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def watched(guards: Guards) -> Any:
    """The protocol, with a look at what the parser does."""

    class Watched(guarded(guards)):  # type: ignore[misc]  # made by a function
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.parser: Any = Parser(self.parser, self)
            self.without_yield = self.most_without_yield = self.begun = 0
            self.fed_after_close = False

        def on_headers_complete(self) -> None:
            self.without_yield = 0
            self.begun += 1
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self.without_yield = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.without_yield = 0
            super().on_message_complete()

    return Watched


_SHARED = {
    "guards",
    "config",
    "app",
    "loop",
    "transport",
    "server_state",
    "connections",
    "tasks",
    "app_state",
}


def held_bytes(connection: object) -> int:
    """Bytes in everything that belongs to a connection alone, each object once."""
    seen: set[int] = set()
    total = 0
    waiting = [value for name, value in vars(connection).items() if name not in _SHARED]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, bytes | bytearray | str):
            total += len(one)
            if total > HELD_BYTES:
                break
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple | deque | set):
            waiting += one
        elif type(one).__module__.startswith(("turret.service.", "uvicorn.protocols")):
            waiting += [value for name, value in vars(one).items() if name not in _SHARED]
    return total


class Fuzz:
    """Drives cases, and notes which of them broke what."""

    def __init__(self) -> None:
        self.app = Application()
        self.admission = Admission(dict.fromkeys(("recommend", "batch", "store", "read", "operator"), 64))
        self.guards = Guards(self.admission, ConnectionReaper(60), Deadlines(), body_limit=LIMIT)
        self.protocol = watched(self.guards)
        self.config = uvicorn.Config(self.app, ws="none", lifespan="off", log_config=None)
        self.broken: dict[str, list[tuple[Case, str]]] = defaultdict(list)
        self.statuses: Counter[int] = Counter()
        self.names: set[str] = set()

    async def run(self, cases: int) -> None:
        grammar = Grammar(SEED, WORLD)
        for case in chain(CORPUS, (grammar.case() for _ in range(cases))):
            self.names |= set(case.names)
            forbidden = self.app.forbidden
            await self.drive(case)
            if self.app.forbidden > forbidden:
                self.broken["forbidden"].append((case, "it was run"))

    async def drive(self, case: Case) -> None:
        transport = Transport(case.ending == "unread")
        state = ServerState()
        connection = self.protocol(config=self.config, server_state=state, app_state={"numbers": count()})
        transport.protocol = connection
        connection.connection_made(transport)
        most = fed = 0
        for segment in case.segments:
            for at in range(0, len(segment), READ):
                await until(lambda: not transport.reading_paused or transport.closing)
                if transport.reading_paused or transport.closing:
                    break
                self.called(case, connection.data_received, segment[at : at + READ])
                fed += len(segment[at : at + READ])
                if fed > HELD_BYTES // 4:  # what was fed can't come to more otherwise
                    most = max(most, held_bytes(connection))
        await until(lambda: not state.tasks)
        self.end(case, connection, transport)
        await until(lambda: transport.lost and not state.tasks)
        self.check(case, connection, transport, most)

    def called(self, case: Case, call: Callable[[Any], None], argument: object) -> None:
        """Call as the loop does: an exception of one connection may end the watch over all of them."""
        try:
            call(argument)
        except Exception as error:
            self.broken["raised"].append((case, repr(error)))

    def end(self, case: Case, connection: Any, transport: Transport) -> None:
        """End as the client of the case does; then as its deadlines do."""
        if case.ending == "reset":
            transport.lose(ConnectionResetError())
        elif case.ending == "half" and not transport.closing and not connection.eof_received():
            transport.close()
        for later in (1_000, 2_000, 3_000, 4_000):
            if not transport.lost:
                self.called(case, connection.check_deadlines, connection.loop.time() + later)
        if not transport.closing and connection.timeout_keep_alive_task is not None:
            connection.timeout_keep_alive_handler()

    def check(self, case: Case, connection: Any, transport: Transport, most: int) -> None:
        broken = self.broken
        if not transport.lost:
            broken["ended"].append((case, "no deadline ends it"))
        if most > HELD_BYTES:
            broken["held"].append((case, f"{most} bytes were held"))
        if connection.most_without_yield > WITHOUT_YIELD:
            broken["yield"].append(
                (case, f"{connection.most_without_yield} bytes gave neither head nor body")
            )
        if connection.fed_after_close:
            broken["fed"].append((case, "the parser was fed after the end"))
        if (
            any(limiter.active for limiter in self.admission.limiters)
            or self.admission.paused
            or self.admission.held.total
            or self.guards.reaper.connections
        ):
            broken["admission"].append(
                (case, str([(one.name, one.active) for one in self.admission.limiters]))
            )
            for limiter in self.admission.limiters:
                limiter.active = 0
            self.admission.paused = 0
            self.guards.reaper.connections.clear()
        try:
            answers = read_answers(bytes(transport.written), case.methods, case.ending != "wait")
        except MalformedAnswerError as error:
            broken["answers"].append((case, str(error)))
        else:
            self.check_answers(case, connection, answers)

    def check_answers(self, case: Case, connection: Any, answers: list[WireAnswer]) -> None:
        self.statuses.update(one.status for one in answers)
        if any(one.status >= 500 and one.status != 503 for one in answers):
            self.broken["fault"].append((case, str(answers)))
        if case.bodies is not None and case.ending == "wait":
            read = tuple(
                LIMIT if one.status == 413 else int(one.headers.get(b"x-body", b"-1")) for one in answers
            )
            complete = len(read) == len(case.bodies) or answers[-1].headers.get(b"connection") == b"close"
            if not complete or any(a != min(b, LIMIT) for a, b in zip(read, case.bodies, strict=False)):
                self.broken["valid"].append((case, f"bodies of {case.bodies} bytes were read as {read}"))
        numbers = [one.headers.get(b"x-number") for one in answers]
        given = [number for number in numbers if number is not None]
        if given != [b"%d" % place for place in range(len(given))]:
            self.broken["order"].append((case, f"answers {given}"))
        # A refusal that ends the connection is the answer to what came last, and not to what came before.
        if None in numbers and numbers.index(None) < connection.begun - 1:
            self.broken["order"].append((case, f"{connection.begun} requests, {numbers}: {answers[-1]}"))
        # What could not be read has an answer of its own, and a request that was cut off may have none.
        if len(answers) > connection.begun + 1:
            self.broken["once"].append((case, f"{connection.begun} requests, {len(answers)} answers"))


async def until(true: Callable[[], bool], turns: int = 60) -> None:
    """Let the loop turn until something is true, or for so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
        if true():
            return


@pytest.mark.fault(39)
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
    assert {200, 400, 413, 429, 431} <= fuzz.statuses.keys()
