"""The protocol on a real socket."""

import asyncio

import pytest

from service.protocol import HEAD_BYTES, PIPELINED
from tests.service.small_server import GET, POST, leave, read, refused, run, running


def test_what_is_right_is_answered_on_one_connection() -> None:
    async def scenario() -> None:
        async with running() as server:
            answers = await server.ask(GET + POST + b"0123456789" + GET)
            assert [status for status, _, _ in answers] == [200] * 3

    run(scenario)


@pytest.mark.parametrize(
    ("content", "status", "field"),
    [
        (b"hello\r\n\r\n", 400, "request"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400, "request"),
        (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 400, "request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 10 * HEAD_BYTES, 431, "headers"),
        (b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 101 + b"\r\n", 431, "headers"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "request"),
    ],
    ids=["no http", "no ascii", "connect", "header", "endless", "path", "lines", "two lengths"],
)
def test_a_head_that_can_not_be_read_is_refused_and_its_connection_closed(
    content: bytes, status: int, field: str
) -> None:
    async def scenario() -> None:
        async with running() as server:
            (answer,) = await server.ask(content)
            refused(answer, status, field)
            assert answer[1]["connection"] == "close"
            assert server.app.began == 0
            assert server.lanes.refusals()["size"] == (status == 431)

    run(scenario)


def test_a_large_body_is_no_large_head() -> None:
    async def scenario() -> None:
        async with running() as server:
            body = b"x" * 5 * HEAD_BYTES
            head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            assert [one[0] for one in await server.ask(head + body)] == [200]

    run(scenario)


def test_what_a_lane_has_no_room_for_is_refused_and_the_connection_stays() -> None:
    """It is not read for a moment; then the same connection is answered."""

    async def scenario() -> None:
        async with running(limit=2) as server:
            server.app.open.clear()
            held = [asyncio.create_task(server.ask(GET)) for _ in range(2)]
            while server.app.began < 2:
                await asyncio.sleep(0.01)
            reader, writer = await server.connect()
            writer.write(POST + b"0123456789")
            answer = await read(reader)
            refused(answer, 503, "service")
            assert answer is not None
            assert answer[1]["retry-after"] == "1"
            assert server.lanes.paused == 1
            server.app.open.set()
            await asyncio.gather(*held)
            writer.write(GET)
            answer = await read(reader)
            assert answer is not None
            assert answer[0] == 200
            assert server.lanes.paused == 0
            await leave(writer)

    run(scenario)


def test_a_refused_request_whose_body_still_comes_does_not_confuse_the_next() -> None:
    async def scenario() -> None:
        async with running(limit=1) as server:
            server.app.open.clear()
            held = asyncio.create_task(server.ask(GET))
            while not server.app.began:
                await asyncio.sleep(0.01)
            reader, writer = await server.connect()
            writer.write(POST + b"01234")
            refused(await read(reader), 503, "service")
            server.app.open.set()
            await held
            writer.write(b"56789" + GET)
            answer = await read(reader)
            assert answer is not None
            assert answer[0] == 200
            await leave(writer)

    run(scenario)


def test_bodies_that_do_not_come_take_no_room_from_those_that_do() -> None:
    """Large ones do, as they must be read while they come, but only of other large ones."""

    async def scenario() -> None:
        async with running(limit=2) as server:
            large = b"POST /v1/recommend HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 70_000
            held = [await server.connect() for _ in range(12)]
            for number, (_, writer) in enumerate(held):
                writer.write(large if number < 2 else POST + b"01")
            while server.app.began < 1:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert server.app.began == 1
            larger = [asyncio.create_task(read(held[number][0])) for number in (0, 1)]
            done, _ = await asyncio.wait(larger, return_when=asyncio.FIRST_COMPLETED)
            refused(done.pop().result(), 503, "service")
            assert [one[0] for one in await server.ask(POST + b"0123456789")] == [200]
            held[5][1].write(b"23456789")
            answer = await read(held[5][0])
            assert answer is not None
            assert answer[0] == 200
            for _, writer in held:
                await leave(writer)
            await asyncio.gather(*larger)

    run(scenario)


def test_who_waits_to_be_asked_for_a_body_is_asked() -> None:
    async def scenario() -> None:
        async with running() as server:
            reader, writer = await server.connect()
            writer.write(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"0123456789")
            answer = await read(reader)
            assert answer is not None
            assert answer[0] == 200
            await leave(writer)

    run(scenario)


def test_many_requests_in_one_go_do_not_fill_the_memory() -> None:
    async def scenario() -> None:
        async with running(limit=50) as server:
            server.app.open.clear()
            answers = asyncio.create_task(server.ask(GET * 5000))
            await asyncio.sleep(0.3)
            server.app.open.set()
            last = (await answers)[-1]
            refused(last, 429, "connection")
            assert server.app.began <= PIPELINED + 1

    run(scenario)


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n", b"\r\n\r\n", POST, POST + b"012"]
)
def test_who_does_not_finish_a_request_is_given_up(sent: bytes) -> None:
    async def scenario() -> None:
        async with running(head=0.2, body=0.4) as server:
            reader, writer = await server.connect()
            writer.write(sent)
            answer = await read(reader)
            if sent.strip():
                refused(answer, 408, "request")
            assert await reader.read() == b""
            await leave(writer)

    run(scenario)


def test_a_byte_now_and_then_does_not_help() -> None:
    async def scenario() -> None:
        async with running(head=0.3) as server:
            reader, writer = await server.connect()
            answer = asyncio.create_task(read(reader))
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 100:
                if not answer.done():
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.02)
            assert answer.done()
            refused(await answer, 408, "request")
            await leave(writer)

    run(scenario)


def test_blank_lines_between_requests_do_not_keep_a_connection() -> None:
    async def scenario() -> None:
        async with running(head=0.2, keep=1) as server:
            reader, writer = await server.connect()
            writer.write(GET)
            assert await read(reader) is not None
            closed = asyncio.create_task(read(reader))
            for _ in range(40):
                if not closed.done():
                    writer.write(b"\r\n")
                    await asyncio.sleep(0.03)
            assert closed.done()
            refused(await closed, 408, "request")
            await leave(writer)

    run(scenario)


def test_a_request_that_takes_too_long_is_ended_with_a_sentence() -> None:
    async def scenario() -> None:
        async with running(request=0.2) as server:
            server.app.open.clear()
            (answer,) = await server.ask(GET)
            refused(answer, 503, "service")
            assert answer[1]["retry-after"] == "1"
            assert server.lanes.lanes[0].active == 0
            assert server.lanes.refusals() == {"time": 1}

    run(scenario)


def test_more_connections_than_there_may_be_are_closed() -> None:
    async def scenario() -> None:
        async with running(most=2) as server:
            held = [await server.connect() for _ in range(2)]
            await asyncio.sleep(0.1)
            reader, writer = await server.connect()
            refused(await read(reader), 503, "connection")
            assert server.lanes.refusals() == {"overload": 1}
            await leave(writer)
            for _, one in held:
                await leave(one)
            await asyncio.sleep(0.1)
            assert [one[0] for one in await server.ask(GET)] == [200]

    run(scenario)


def test_a_wish_for_another_protocol_is_left_alone() -> None:
    async def scenario() -> None:
        async with running() as server:
            head = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            assert [one[0] for one in await server.ask(head)] == [200]

    run(scenario)
