"""Admission behind a socket: bodies within limits, places in lanes, and refusals that hold their clients."""

import asyncio

import pytest

from tests.service.small_server import GET, POST, PROBE, refused, running, served
from tests.support.until import eventually
from turret.service.http.admission import SMALL_ANSWER

BODY = b"0123456789"


def sized(count: int, *lines: bytes) -> bytes:
    """The head of a body of so many bytes."""
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
