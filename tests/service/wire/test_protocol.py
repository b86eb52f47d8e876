"""The protocol on a real socket."""

import asyncio

import pytest

from tests.service.small_server import GET, POST, leave, read, refused, run, running, served, until
from turret.service.wire.counted_protocol import FRAMING_BYTES
from turret.service.wire.held_bytes import HeldBytes
from turret.service.wire.limiter import STALLED_SECONDS
from turret.service.wire.protocol import PROBE_CONNECTIONS
from turret.service.wire.refusals import HEAD_BYTES, PIPELINED


def test_valid_requests_are_answered_on_one_connection() -> None:
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
            assert server.admission.refusals()["size"] == (status == 431)

    run(scenario)


def test_a_head_behind_another_request_has_the_same_limit() -> None:
    """Also where pieces of what is read end within it."""

    async def scenario(size: int, count: int, expected: list[int]) -> None:
        head = b"GET / HTTP/1.1\r\nX: " + b"x" * size + b"\r\n\r\n"
        async with running() as server:
            assert [status for status, _, _ in await server.ask(GET + count * head)] == expected

    run(lambda: scenario(HEAD_BYTES + HEAD_BYTES // 2, 1, [200, 431]))
    run(lambda: scenario(HEAD_BYTES // 8, PIPELINED - 1, [200] * PIPELINED))


def test_a_large_body_is_no_large_head() -> None:
    async def scenario() -> None:
        async with running() as server:
            body = b"x" * 5 * HEAD_BYTES
            head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            assert [one[0] for one in await server.ask(head + body)] == [200]

    run(scenario)


def test_a_request_beyond_the_limit_is_refused_and_its_connection_kept() -> None:
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
            assert server.admission.paused == 1
            server.app.open.set()
            await asyncio.gather(*held)
            writer.write(GET)
            served(await read(reader))
            assert server.admission.paused == 0
            await leave(writer)

    run(scenario)


def test_the_body_of_a_refused_request_is_not_taken_for_the_next_request() -> None:
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
            served(await read(reader))
            await leave(writer)

    run(scenario)


def test_bodies_that_do_not_come_take_no_room_from_those_that_do() -> None:
    async def scenario() -> None:
        async with running(limit=2) as server:
            large = b"POST /v1/recommend HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 70_000
            held = [await server.connect() for _ in range(12)]
            for number, (_, writer) in enumerate(held):
                writer.write(large if number < 6 else POST + b"01")
            await until(lambda: server.admission.held.bodies == 6 * 70_000 + 6 * 2)
            assert server.app.began == 0
            assert [one[0] for one in await server.ask(POST + b"0123456789")] == [200]
            held[8][1].write(b"23456789")
            served(await read(held[8][0]))
            held[0][1].write(b"x" * 830_000)
            served(await read(held[0][0]))
            for _, writer in held:
                await leave(writer)
            await until(lambda: server.admission.held.total == 0)

    run(scenario)


def test_expect_100_continue_is_answered() -> None:
    async def scenario() -> None:
        async with running() as server:
            reader, writer = await server.connect()
            writer.write(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"0123456789")
            served(await read(reader))
            await leave(writer)

    run(scenario)


def test_pipelined_requests_are_bounded() -> None:
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
def test_an_unfinished_request_is_closed_at_its_deadline(sent: bytes) -> None:
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
            assert server.admission.limiters[0].active == 0
            assert server.admission.refusals() == {"time": 1}

    run(scenario)


def test_more_connections_than_there_may_be_are_closed() -> None:
    async def scenario() -> None:
        async with running(most=2) as server:
            held = [await server.connect() for _ in range(2)]
            await asyncio.sleep(0.1)
            (answer,) = await server.ask(GET)
            refused(answer, 503, "connection")
            assert server.admission.refusals() == {"overload": 1}
            for _, one in held:
                await leave(one)
            await asyncio.sleep(0.1)
            assert [one[0] for one in await server.ask(GET)] == [200]

    run(scenario)


def test_a_few_connections_more_may_ask_whether_the_service_lives() -> None:
    async def scenario() -> None:
        async with running(most=1) as server:
            held = [await server.connect() for _ in range(1 + PROBE_CONNECTIONS - 1)]
            await asyncio.sleep(0.1)
            assert [one[0] for one in await server.ask(GET.replace(b"/v1/recommend", b"/livez"))] == [200]
            for _ in range(
                3
            ):  # who waits longest goes, so that a probe is answered whoever holds connections
                held.append(await server.connect())
                await asyncio.sleep(0.05)
                assert [one[0] for one in await server.ask(GET.replace(b"/v1/recommend", b"/livez"))] == [200]
            refused(await read(held[1][0]), 503, "connection")
            for _, one in held:
                await leave(one)

    run(scenario)


def test_a_wish_for_another_protocol_is_left_alone() -> None:
    async def scenario() -> None:
        async with running() as server:
            head = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            assert [one[0] for one in await server.ask(head)] == [200]

    run(scenario)


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_the_body_of_a_declined_upgrade_is_read(framing: bytes) -> None:
    """As `curl --http2` sends it; what comes behind it is not."""

    async def scenario() -> None:
        async with running() as server:
            body = b"0123456789" if b"Length" in framing else b"a\r\n0123456789\r\n0\r\n\r\n"
            offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
            head = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\n" + offer + framing + b"\r\n"
            for content in (head + body, head + body + GET):
                (answer,) = await server.ask(content)
                assert answer[0] == 200
                assert answer[1]["connection"] == "close"
            assert server.app.bodies == [b"0123456789"] * 2
            reader, writer = await server.connect()
            for byte in head + body:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            answer_or_none = await read(reader)
            assert answer_or_none is not None
            assert answer_or_none[0] == 200
            assert server.app.bodies == [b"0123456789"] * 3
            await leave(writer)

    run(scenario)


CHUNKED = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_trailers_are_no_headers() -> None:
    async def scenario() -> None:
        async with running() as server:
            trailers = b"Authorization: Bearer x\r\nX-Forwarded-For: 1.2.3.4\r\n"
            answers = await server.ask(CHUNKED + b"1\r\nx\r\n0\r\n" + trailers + b"\r\n" + GET)
            assert [status for status, _, _ in answers] == [200, 200]
            assert server.app.headers == [
                [(b"host", b"x"), (b"transfer-encoding", b"chunked")],
                [(b"host", b"x")],
            ]

    run(scenario)


@pytest.mark.parametrize(
    "piece",
    [b"X: y\r\n" * 1000, b"x" * 6000, b"0" * 6000, b"1;" + b"x" * 6000 + b"\r\nx\r\n"],
    ids=["trailers", "one trailer", "size", "extensions"],
)
def test_the_framing_of_a_body_is_counted(piece: bytes) -> None:
    """In small pieces and in large ones: a client may send as much of it as it sends body, and some more."""

    async def scenario() -> None:
        async with running() as server:
            begin = CHUNKED if piece.startswith((b"1;", b"0")) else CHUNKED + b"1\r\nx\r\n0\r\n"
            begin += b"X: " if piece == b"x" * 6000 else b""
            for size in (1, 50):
                reader, writer = await server.connect()
                writer.write(begin)
                sent, answered = 0, asyncio.create_task(read(reader))
                while not answered.done() and sent < 10 * FRAMING_BYTES:
                    writer.write(piece * size)
                    sent += len(piece) * size
                    await asyncio.sleep(0.005)
                refused(await answered, 400, "body")
                assert await reader.read() == b""
                await leave(writer)
            assert server.admission.refusals()["size"] == 2
            assert server.app.began == 0

    run(scenario)


def test_a_body_beyond_the_limit_is_refused_while_it_arrives() -> None:
    async def scenario() -> None:
        async with running(body_limit=100_000) as server:
            reader, writer = await server.connect()
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: 900000000\r\n\r\n" + b"x" * 100_000)
            await until(lambda: server.admission.held.bodies == 100_000)
            writer.write(b"x")
            refused(await read(reader), 413, "body")
            assert await reader.read() == b""
            await leave(writer)
            await until(lambda: server.admission.held.total == 0)
            assert server.app.began == 0

    run(scenario)


def test_a_client_that_keeps_sending_reads_its_refusal() -> None:
    """Were the connection closed at once, the system would reset it, and the refusal with it."""

    async def scenario() -> None:
        async with running(body_limit=1000) as server:
            for _ in range(20):
                reader, writer = await server.connect()
                writer.write(b"POST / HTTP/1.1\r\nContent-Length: 900000000\r\n\r\n")
                for _ in range(20):
                    writer.write(b"x" * 10_000)
                    await asyncio.sleep(0)
                refused(await read(reader), 413, "body")
                await leave(writer)

    run(scenario)


def test_bodies_of_all_connections_together_are_bounded_and_the_oldest_gives_way() -> None:
    async def scenario() -> None:
        async with running(held=HeldBytes(bodies=100_000)) as server:
            large = b"POST / HTTP/1.1\r\nContent-Length: 90000\r\n\r\n" + b"x" * 40_000
            held = [await server.connect() for _ in range(3)]
            for number, (_, writer) in enumerate(held):
                writer.write(large)
                await until(lambda number=number: server.admission.held.bodies == min(number + 1, 2) * 40_000)  # type: ignore[misc]
            refused(await read(held[0][0]), 503, "service")
            held[2][1].write(b"x" * 50_000)
            served(await read(held[2][0]))
            for _, writer in held:
                await leave(writer)
            await until(lambda: server.admission.held.total == 0)

    run(scenario)


def test_without_a_valid_key_a_body_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with running(is_admissible=lambda scope: scope["path"] != "/closed") as server:
            closed = POST.replace(b"/v1/recommend", b"/closed")
            reader, writer = await server.connect()
            writer.write(closed)
            served(await read(reader))
            assert server.admission.unknown.active == 0
            writer.write(b"0123456789" + GET)
            assert await read(reader) is not None
            writer.write(closed.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            answer = await read(reader)
            assert answer is not None
            assert (answer[0], answer[1]["connection"]) == (200, "close")
            await leave(writer)

    run(scenario)


def test_a_fault_behind_a_request_is_answered_after_it() -> None:
    async def scenario() -> None:
        async with running() as server:
            server.app.open.clear()
            answers = asyncio.create_task(server.ask(GET + b"nonsense\r\n\r\nHTTP/1.1"))
            await until(lambda: server.app.began == 1)
            server.app.open.set()
            (status, _, _), last = await answers
            assert status == 200
            refused(last, 400, "request")

    run(scenario)


@pytest.mark.fault(41)
def test_a_request_is_active_until_its_response_is_sent() -> None:
    async def scenario() -> None:
        async with running(limit=1) as server:
            server.app.size = 8_000_000
            reader, writer = await server.connect()
            writer.write(GET)
            await until(lambda: server.admission.held.unsent > 1_000_000)
            (limiter, *_) = server.admission.limiters
            assert limiter.active == 1
            (answer,) = await server.ask(GET)
            refused(answer, 503, "service")
            assert len(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(8_000_000)) > 8_000_000
            await until(lambda: limiter.active == 0)
            assert server.admission.held.unsent == 0
            await leave(writer)

    run(scenario)


@pytest.mark.fault(41)
def test_a_stalled_response_gives_its_slot_to_a_new_request() -> None:
    async def scenario() -> None:
        async with running(limit=1) as server:
            server.app.size = 8_000_000
            _, writer = await server.connect()
            writer.write(GET)
            await until(lambda: server.admission.held.unsent > 1_000_000)
            await asyncio.sleep(STALLED_SECONDS)
            server.app.size = 2
            assert [one[0] for one in await server.ask(GET)] == [200]
            assert server.admission.held.unsent == 0
            await leave(writer)

    run(scenario)


@pytest.mark.fault(41)
def test_unsent_answers_of_all_connections_together_are_bounded() -> None:
    async def scenario() -> None:
        async with running(limit=10, held=HeldBytes(unsent=10_000_000)) as server:
            server.app.size = 8_000_000
            held = [await server.connect() for _ in range(3)]
            for _, writer in held:
                writer.write(GET)
                await until(lambda: server.admission.held.unsent > 1_000_000)
                await asyncio.sleep(0.05)
                assert server.admission.held.unsent <= 10_000_000
            for _, writer in held:
                await leave(writer)
            await until(lambda: server.admission.held.total == 0)

    run(scenario)


def test_requests_before_a_fault_keep_their_bodies() -> None:
    async def scenario() -> None:
        async with running(limit=50) as server:
            post = POST + b"0123456789"
            answers = await server.ask(post * 3 + b"nonsense\r\n\r\nHTTP/1.1")
            assert [status for status, _, _ in answers] == [200, 200, 200, 400]
            assert server.app.bodies == [b"0123456789"] * 3
            answers = await server.ask(post * 20)
            assert [status for status, _, _ in answers] == [200] * 17 + [429]
            assert server.app.bodies == [b"0123456789"] * 20
            assert server.admission.held.total == 0

    run(scenario)


def test_a_head_after_a_complete_request_is_counted_from_its_first_byte() -> None:
    async def scenario() -> None:
        async with running() as server:
            answers = await server.ask(GET + b"GET / HTTP/1.1\r\nX: " + b"x" * 60_000)
            assert [status for status, _, _ in answers] == [200, 431]

    run(scenario)


@pytest.mark.parametrize(
    ("rest", "status"), [(b"x" * 2_000_000, 413), (b"nonsense", 400)], ids=["too large", "no chunk"]
)
def test_a_request_that_reads_an_arriving_body_is_refused_beyond_the_limit(rest: bytes, status: int) -> None:
    """As one with a key that is not compared before the application is asked."""

    async def scenario() -> None:
        async with running(is_admissible=lambda _: False) as server:
            server.app.open.clear()
            framing = b"Content-Length: 2000000" if status == 413 else b"Transfer-Encoding: chunked"
            reader, writer = await server.connect()
            writer.write(b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n" + rest)
            refused(await read(reader), status, "body" if status == 413 else "request")
            await leave(writer)
            server.app.open.set()
            await until(lambda: server.admission.unknown.active == 0 and server.admission.held.total == 0)

    run(scenario)


def test_an_offer_of_another_protocol_that_is_refused_is_the_last_of_its_connection() -> None:
    async def scenario() -> None:
        async with running(limit=1) as server:
            server.app.open.clear()
            held = asyncio.create_task(server.ask(GET))
            await until(lambda: server.app.began == 1)
            offer = GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            (answer,) = await server.ask(offer)
            refused(answer, 503, "service")
            assert answer[1]["connection"] == "close"
            server.app.open.set()
            await held

    run(scenario)


def test_an_offer_with_a_body_that_can_not_be_framed_is_refused() -> None:
    async def scenario() -> None:
        async with running() as server:
            offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: gzip\r\n\r\n"
            answers = await server.ask(b"POST / HTTP/1.1\r\nHost: x\r\n" + offer + b"x")
            refused(answers[-1], 400, "request")

    run(scenario)


def test_no_100_continue_for_a_body_declared_too_large() -> None:
    async def scenario() -> None:
        async with running(body_limit=1000) as server:
            head = POST.replace(b"10\r\n\r\n", b"1001\r\nExpect: 100-continue\r\n\r\n")
            (answer,) = await server.ask(head)
            refused(answer, 413, "body")

    run(scenario)


def test_a_body_of_exactly_the_limit_is_asked_for() -> None:
    async def scenario() -> None:
        async with running(body_limit=10) as server:
            reader, writer = await server.connect()
            writer.write(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"0123456789")
            served(await read(reader))
            await leave(writer)

    run(scenario)


def test_the_timeout_of_a_request_starts_when_it_is_complete() -> None:
    async def scenario() -> None:
        async with running(request=0.3) as server:
            reader, writer = await server.connect()
            writer.write(POST + b"01234")
            await asyncio.sleep(0.5)
            writer.write(b"56789")
            served(await read(reader))
            await leave(writer)

    run(scenario)


def test_a_body_is_held_until_its_request_has_ended_also_without_its_client() -> None:
    async def scenario() -> None:
        async with running() as server:
            server.app.open.clear()
            _, writer = await server.connect()
            writer.write(POST + b"0123456789")
            await until(lambda: server.app.began == 1)
            await leave(writer)
            await asyncio.sleep(0.1)
            assert server.admission.held.bodies == 10
            server.app.open.set()
            await until(lambda: server.admission.held.total == 0)

    run(scenario)


def test_probes_take_no_time_of_a_slice() -> None:
    async def scenario() -> None:
        async with running(limit=50) as server:
            probes = [
                asyncio.create_task(server.ask(GET.replace(b"/v1/recommend", b"/livez"))) for _ in range(60)
            ]
            asked = [asyncio.create_task(server.ask(GET)) for _ in range(10)]
            for answers in await asyncio.gather(*probes, *asked):
                assert [status for status, _, _ in answers] == [200]
            assert server.admission.probe.active == 0

    run(scenario)
