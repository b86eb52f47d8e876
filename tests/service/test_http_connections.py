"""Connections behind a socket: limits of heads, framing, time and bodies, and places in lanes."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.service.small_server import GET, POST, PROBE, Application, refused, running, served
from tests.support.until import eventually
from turret.service.calls import find
from turret.service.errors import BodyError
from turret.service.http import guard
from turret.service.http.admission import SMALL_ANSWER, Admission, _Request
from turret.service.http.guard import FRAMING_BYTES, HEAD_BYTES, Guard
from turret.service.http.turns import A_TURN
from turret.service.process.server import config_of, connection_limit
from turret.service.request_record import RequestRecord
from turret.service.settings import Settings

BODY = b"0123456789"
CHUNKED = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
READ = 256 * 1024  # the most that the event loop reads at once
CLOSED = POST.replace(b"/v1/recommend", b"/closed")


@pytest.mark.fault(38)
@pytest.mark.parametrize(
    ("content", "status", "field"),
    [
        (b"hello\r\n\r\n", 400, "request"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400, "request"),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 400, "Upgrade"),
        (b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 400, "Upgrade"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 10 * HEAD_BYTES, 431, "headers"),
        (b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 101 + b"\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "request"),
        (b"GET / HTTP/1.1\r\nContent-Length: %b5\r\n\r\n" % (b"0" * 5_000), 400, "request"),
    ],
    ids=[
        "no http",
        "no ascii",
        "connect",
        "upgrade",
        "header",
        "endless",
        "path",
        "lines",
        "two lengths",
        "zeros",
    ],
)
async def test_a_head_that_can_not_be_read_is_refused_and_its_connection_closed(
    content: bytes, status: int, field: str
) -> None:
    async with running() as server:
        client = await server.connect(content)
        answer = await client.answer()
        refused(answer, status, field)
        assert answer.headers["connection"] == "close"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert await client.rest() == b""
        assert server.app.began == 0
        assert server.refused["size"] == (status == 431)


@pytest.mark.fault(18)
@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n", b"\r\n\r\n"])
async def test_an_unfinished_head_is_closed_at_its_deadline(sent: bytes) -> None:
    async with running() as server:
        client = await server.connect(sent)
        if sent:
            refused(await client.answer(), 408, "request")
        assert await client.rest() == b""
        assert 10 <= asyncio.get_running_loop().time() < 13


@pytest.mark.parametrize("before", [b"", GET])
async def test_a_byte_now_and_then_does_not_prolong_a_deadline(before: bytes) -> None:
    """Nor do blank lines between requests."""
    async with running() as server:
        client = await server.connect(before)
        if before:
            served(await client.answer())
        began = asyncio.get_running_loop().time()
        for byte in b"\r\n" * 40 if before else b"GET / HTTP/1.1\r\nX: " + b"x" * 40:
            if server.server.server_state.connections:
                client.send(bytes([byte]))
                await asyncio.sleep(0.5)
        assert server.refused == {"time": 1}
        assert 10 <= asyncio.get_running_loop().time() - began < 13


async def test_connections_beyond_the_limit_are_closed_and_those_within_it_go_on() -> None:
    async with running(most=2) as server:
        kept, _ = [await server.connect() for _ in range(2)]
        answer = await server.ask(b"")
        refused(answer, 503, "connection")
        assert answer.headers["retry-after"] == "1"
        assert server.refused["overload"] == 1
        kept.send(GET)
        served(await kept.answer())
        await kept.leave()
        await eventually(lambda: len(server.server.server_state.connections) < 2, "one is gone")
        served(await server.ask(GET))


@pytest.mark.fault(35)
@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"1\r\nx\r\n0\r\n", b"X: y\r\n" * 1000),
        (b"1\r\nx\r\n0\r\nX: ", b"x" * 6000),
        (b"", b"0" * 6000),
        (b"", b"1;" + b"x" * 6000 + b"\r\nx\r\n"),
    ],
    ids=["trailers", "one trailer", "size", "extensions"],
)
async def test_the_framing_of_a_body_is_counted(begin: bytes, piece: bytes) -> None:
    """In small pieces and in large ones: a client may send as much of it as it sends body, and some more."""
    async with running() as server:
        for size in (1, 50):
            client = await server.connect(CHUNKED + begin)
            answered = asyncio.create_task(client.answer())
            for _ in range(10 * FRAMING_BYTES // len(piece * size) + 1):
                if not answered.done():
                    client.send(piece * size)
                    await asyncio.sleep(0.01)
            refused(await answered, 400, "body")
            assert await client.rest() == b""
        assert server.refused["size"] == 2
        assert server.app.began == 0


async def test_the_rest_of_a_body_that_is_not_waited_for_is_bounded() -> None:
    """As that of a request without a valid key: it may end, and the connection goes on."""
    async with running() as server:
        client = await server.connect(CLOSED)
        assert (await client.answer()).status == 401
        client.send(BODY + GET)
        served(await client.answer())
        slow = await server.connect(CLOSED.replace(b"10\r\n", b"900000000\r\n"))
        await slow.answer()
        began = asyncio.get_running_loop().time()
        ending = asyncio.create_task(slow.rest())
        for _ in range(30):
            if not ending.done():
                slow.send(b"x")
                await asyncio.sleep(1)
        assert await ending == b""
        assert asyncio.get_running_loop().time() - began < 35


async def test_a_client_that_waits_for_a_100_and_is_refused_is_cut_off() -> None:
    """It may send its body or its next request, which would be taken for the body."""
    async with running() as server:
        client = await server.connect(CLOSED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert (await client.answer()).status == 401
        assert await client.rest() == b""


async def test_an_idle_connection_is_closed_when_the_server_ends() -> None:
    async with running() as server:
        idle = await server.connect(GET)
        served(await idle.answer())
        server.server.should_exit = True
        assert await idle.rest() == b""
    assert asyncio.get_running_loop().time() < 1


@pytest.mark.fault(54)
async def test_a_head_that_has_begun_is_waited_for_while_the_server_drains() -> None:
    async with running(drain=20) as server:
        client = await server.connect(GET[:20])
        await asyncio.sleep(0.1)
        server.server.should_exit = True
        await asyncio.sleep(2)
        client.send(GET[20:])
        served(await client.answer())
        assert await client.rest() == b""


def test_the_guard_can_be_switched_off(client: Any) -> None:
    """So that a release of uvicorn that breaks it can be used behind a proxy."""
    plain = config_of(Settings(guard=False), client.app)
    assert (plain.http, plain.limit_concurrency) == ("httptools", connection_limit())
    assert config_of(Settings(), client.app).limit_concurrency is None


# ---- Bodies and places


async def test_a_length_of_thousands_of_digits_is_refused_without_the_guard() -> None:
    """Which httptools reads, if they are zeros, and `int` does not."""

    async def nothing(*_: Any) -> None:
        raise AssertionError

    headers = {b"content-length": b"0" * 5_000 + b"5"}
    record = RequestRecord(find("POST", "/v1/recommend"), headers, "1", 0)
    scope: Any = {"type": "http", "method": "POST", "turret": record}
    with pytest.raises(BodyError) as error:
        await Admission(nothing, Settings(), nothing)(scope, nothing, nothing)  # type: ignore[arg-type]
    assert error.value.status == 413


def sized(count: int, *lines: bytes) -> bytes:
    return b"\r\n".join((POST.replace(b"10\r\n\r\n", b"%d" % count), *lines, b"", b""))


@pytest.mark.fault(17)
async def test_a_request_beyond_the_limit_is_refused_at_once_and_its_client_held() -> None:
    """Its next request is begun a moment later, and the connection is kept."""
    async with running(limit=2) as server:
        server.app.open.clear()
        running_ones = [await server.connect(GET) for _ in range(2)]
        await eventually(lambda: server.app.began == 2, "both have begun")
        third = await server.connect(POST + BODY + GET)
        answer = await third.answer()
        refused(answer, 503, "service")
        assert answer.headers["retry-after"] == "1"
        assert asyncio.get_running_loop().time() < 0.05
        assert server.refused["overload"] == server.admission.paused == 1
        server.app.open.set()
        for client in running_ones:
            served(await client.answer())
        assert server.app.began == 2
        served(await third.answer())
        assert asyncio.get_running_loop().time() >= 0.05


@pytest.mark.fault(37)
async def test_probes_have_no_lane() -> None:
    async with running(limit=1, most=200) as server:
        server.app.open.clear()
        await server.connect(GET)
        await eventually(lambda: server.places == 1, "the only place is taken")
        probing = [await server.connect(PROBE) for _ in range(100)]
        await eventually(lambda: server.app.began == 101, "all have begun")
        server.app.open.set()
        for client in probing:
            served(await client.answer())
        assert not server.refused


@pytest.mark.fault(36)
async def test_bodies_that_do_not_come_take_no_place_from_those_that_do() -> None:
    async with running(limit=2) as server:
        clients = [
            await server.connect(sized(900_000) + b"x" * 70_000 if number < 6 else POST + b"01")
            for number in range(12)
        ]
        await eventually(lambda: server.admission.held_bytes == 6 * 70_000 + 6 * 2, "all are held")
        assert server.app.began == 0
        served(await server.ask(POST + BODY))
        clients[8].send(BODY[2:])
        served(await clients[8].answer())
        clients[0].send(b"x" * 830_000)
        served(await clients[0].answer())
        assert [len(body) for _, body in server.app.requests] == [10, 10, 900_000]


async def test_a_client_that_expects_100_continue_is_asked_for_a_body_within_the_limit() -> None:
    async with running(body_limit=10) as server:
        client = await server.connect(sized(10, b"Expect: 100-continue"))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(BODY)
        served(await client.answer())
        client = await server.connect(sized(11, b"Expect: 100-continue"))
        refused(await client.answer(), 413, "body")


@pytest.mark.parametrize("sent", [POST, POST + b"012"])
async def test_a_body_that_is_late_is_refused_and_its_connection_closed(sent: bytes) -> None:
    async with running() as server:
        client = await server.connect(sent)
        refused(await client.answer(), 408, "body")
        assert await client.rest() == b""
        assert 30 <= asyncio.get_running_loop().time() < 33
        assert server.refused == {"time": 1}


async def test_a_request_that_takes_too_long_is_ended_with_a_sentence() -> None:
    """Its time begins when it is complete."""
    async with running() as server:
        server.app.open.clear()
        client = await server.connect(POST + BODY[:5])
        await asyncio.sleep(25)
        client.send(BODY[5:])
        await asyncio.sleep(25)
        assert server.app.began == server.places == 1
        answer = await client.answer()
        refused(answer, 503, "service")
        assert answer.headers["retry-after"] == "1"
        assert server.refused == {"time": 1}


async def test_a_body_beyond_the_limit_is_refused_while_it_arrives() -> None:
    """Whether its length is known or not; the client reads the refusal though it goes on sending."""
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    chunked = POST.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
    async with running(body_limit=100_000) as server:
        answer = await server.ask(sized(900_000_000))
        refused(answer, 413, "body")
        client = await server.connect(chunked + chunk * 10)
        await eventually(lambda: server.admission.held_bytes == 100_000, "the limit is reached")
        for _ in range(30):
            client.send(chunk)
            await asyncio.sleep(0)
        refused(await client.answer(), 413, "body")
        client.send(b"0\r\n\r\n" + GET)
        served(await client.answer())
        assert server.app.requests == [(b"", b"")]


@pytest.mark.fault(36)
async def test_bodies_of_all_connections_together_are_bounded_and_the_oldest_gives_way() -> None:
    async with running(held=100_000) as server:
        first, second, third = [await server.connect(sized(90_000) + b"x" * 40_000) for _ in range(3)]
        refused(await first.answer(), 503, "body")
        assert server.admission.held_bytes == 80_000
        third.send(b"x" * 50_000)
        served(await third.answer())
        refused(await second.answer(), 503, "body")
        assert server.refused == {"overload": 2}


@pytest.mark.fault(41)
async def test_a_large_answer_keeps_its_place_until_it_is_read() -> None:
    async with running(limit=1) as server:
        server.app.size = 8_000_000
        reading = await server.connect(GET)
        await eventually(lambda: server.app.began == 1, "it is answered")
        await asyncio.sleep(1)
        answer = await server.ask(GET)
        refused(answer, 503, "service")
        whole = await reading.answer()
        assert len(whole.body) == 8_000_000
        await eventually(lambda: server.places == 0, "the answer is read")
        server.app.size = SMALL_ANSWER
        await server.connect(GET)
        await eventually(lambda: server.app.began == 2 and not server.places, "a small one is not waited for")


async def test_a_place_is_kept_until_its_request_has_ended_also_without_its_client() -> None:
    async with running() as server:
        server.app.open.clear()
        client = await server.connect(POST + BODY)
        await eventually(lambda: server.app.began == 1, "it has begun")
        await client.leave()
        await asyncio.sleep(0.1)
        assert (server.admission.held_bytes, server.places) == (10, 1)
        server.app.open.set()
        await eventually(lambda: server.places == 0, "it has ended")


# ---- Turns of the event loop


class Turns:
    """Counts the calls of methods in each turn of the running event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = Counter[int]()
        self._turn, self._monkeypatch = 0, monkeypatch
        loop: Any = asyncio.get_running_loop()
        run_once = loop._run_once

        def counted() -> None:
            self._turn += 1
            run_once()

        loop._run_once = counted

    def count(self, owner: type, name: str) -> None:
        original = getattr(owner, name)

        def method(one: object, *given: object) -> object:
            self.calls[self._turn] += 1
            return original(one, *given)

        self._monkeypatch.setattr(owner, name, method)


@pytest.mark.parametrize(
    ("sent", "ends"),
    [
        (b"", "its deadline"),
        (b"GET / HTTP/1.1", "its deadline"),
        (sized(99) + b"x", "its deadline"),
        (PROBE, "no next request"),
        (GET, "its client"),
        (POST + BODY, "its client"),
    ],
)
async def test_connections_that_end_together_leave_room_in_each_turn(
    sent: bytes, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of some thousands in one turn of the loop would hold everybody else for a second."""
    turns = Turns(monkeypatch)
    for name in ("_give_up", "_end_idle", "_lose"):
        turns.count(Guard, name)
    turns.count(_Request, "end_late")
    number = 5 * A_TURN
    async with running(most=number, limit=number) as server:
        if ends == "its client":
            server.app.open.clear()
        clients = [await server.connect(sent) for _ in range(number)]
        if ends == "its client":
            await eventually(lambda: server.app.began == number, "all have begun")
            for client in clients:
                client.close()
        await eventually(lambda: not server.server.server_state.connections, "all have ended")
        server.app.open.set()
    assert turns.calls.total() >= number
    assert max(turns.calls.values()) <= 2 * A_TURN  # as many requests as connections


async def test_requests_behind_one_that_runs_are_neither_parsed_nor_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parsed, they would take two hundred times their bytes, and all in one turn of the loop."""
    turns, next_ones = Turns(monkeypatch), GET + sized(500) + b"x" * 500
    turns.count(Guard, "on_headers_complete")
    async with running() as server:
        server.app.open.clear()
        client = await server.connect(POST + BODY + next_ones * 1_000)
        await eventually(lambda: server.app.began == 1, "the first has begun")
        connection: Any = next(iter(server.server.server_state.connections))
        await asyncio.sleep(1)
        assert turns.calls.total() == 1
        assert 0 < len(connection._input) <= READ
        server.app.open.set()
        for _ in range(2_001):
            served(await client.answer())
            assert len(connection._input) <= READ
    assert max(turns.calls.values()) == 1
    assert [body for _, body in server.app.requests] == [BODY, *[b"", b"x" * 500] * 1_000]


async def test_requests_behind_others_are_bounded_of_all_connections_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "INPUT_BYTES", 100_000)
    async with running() as server:
        server.app.open.clear()
        clients = [await server.connect(GET + sized(45_000) + b"x" * 45_000) for _ in range(3)]
        await eventually(lambda: server.app.began == 3, "all have begun")
        await eventually(lambda: server.refused == {"overload": 1}, "one is refused")
        server.app.open.set()
        answers = [[(await client.answer()).status for _ in range(2)] for client in clients]
        assert sorted(answers) == [[200, 200], [200, 200], [200, 503]]
        connection: Any = next(iter(server.server.server_state.connections))
        assert type(connection).waiting == 0


async def test_next_requests_of_many_connections_begin_a_few_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, number = Turns(monkeypatch), 5 * A_TURN
    turns.count(Guard, "on_headers_complete")
    async with running(most=number, limit=number) as server:
        server.app.open.clear()
        clients = [await server.connect(GET * 3) for _ in range(number)]
        await eventually(lambda: server.app.began == number, "the first of each has begun")
        turns.calls.clear()
        server.app.open.set()
        for client in clients * 3:
            served(await client.answer())
    assert turns.calls.total() == 2 * number
    assert max(turns.calls.values()) <= A_TURN


async def test_calls_that_anybody_may_send_begin_a_few_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of other lanes go on between them."""
    turns, number = Turns(monkeypatch), 2 * A_TURN
    turns.count(Application, "__call__")
    async with running(most=number) as server:
        clients = [await server.connect() for _ in range(number)]
        for client in clients:
            client.send(GET.replace(b"/v1/recommend", b"/docs"))
        for client in clients:
            served(await client.answer())
    assert turns.calls.total() == number
    assert max(turns.calls.values()) <= A_TURN
