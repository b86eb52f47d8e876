"""The protocol behind a socket: limits of heads, bodies and connections, deadlines, and early refusals."""

import asyncio

import pytest

from tests.service.small_server import GET, POST, PROBE, RECOMMEND, refused, running, served
from tests.support.until import eventually
from tests.support.virtual_time import in_virtual_time
from turret.service.wire.counted_protocol import FRAMING_BYTES
from turret.service.wire.held_bytes import HeldBytes
from turret.service.wire.limiter import STALLED_SECONDS
from turret.service.wire.protocol import PROBE_CONNECTIONS
from turret.service.wire.refusals import HEAD_BYTES, PIPELINED

BODY = b"0123456789"
CHUNKED = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def expecting(head: bytes) -> bytes:
    return head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")


@in_virtual_time
async def test_valid_requests_are_answered_on_one_connection() -> None:
    async with running() as server:
        assert await server.statuses(GET + POST + BODY + GET) == [200] * 3
        large = b"x" * 5 * HEAD_BYTES
        assert await server.statuses(POST.replace(b"10\r\n", b"%d\r\n" % len(large)) + large) == [200]


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
@in_virtual_time
async def test_a_head_that_can_not_be_read_is_refused_and_its_connection_closed(
    content: bytes, status: int, field: str
) -> None:
    async with running() as server:
        (answer,) = await server.ask(content)
        refused(answer, status, field)
        assert answer[1]["connection"] == "close"
        assert server.app.began == 0
        assert server.admission.refusals()["size"] == (status == 431)


@in_virtual_time
async def test_a_head_behind_another_request_has_the_same_limit() -> None:
    """Also where pieces of what is read end within it, and where it has no end."""
    begin = b"GET / HTTP/1.1\r\nX: "
    async with running(limit=PIPELINED) as server:
        assert await server.statuses(GET + begin + b"x" * (HEAD_BYTES * 3 // 2) + b"\r\n\r\n") == [200, 431]
        assert await server.statuses(GET + begin + b"x" * 60_000) == [200, 431]
        small = begin + b"x" * (HEAD_BYTES // 8) + b"\r\n\r\n"
        assert await server.statuses(GET + (PIPELINED - 1) * small) == [200] * PIPELINED


@in_virtual_time
async def test_a_request_beyond_the_limit_is_refused_and_its_connection_kept() -> None:
    """It isn't read for a moment; the rest of a refused body is not taken for the next request."""
    async with running(limit=2) as server:
        server.app.open.clear()
        running_ones = [await server.connect(GET) for _ in range(2)]
        await eventually(lambda: server.app.began == 2, "both have begun")
        whole, partial = await server.connect(POST + BODY), await server.connect(POST + BODY[:5])
        for client in (whole, partial):
            answer = await client.answer()
            refused(answer, 503, "service")
            assert answer is not None
            assert answer[1]["retry-after"] == "1"
        assert server.admission.paused == 2
        server.app.open.set()
        for client in running_ones:
            served(await client.answer())
        whole.send(GET)
        partial.send(BODY[5:] + GET)
        served(await whole.answer())
        served(await partial.answer())
        assert server.admission.paused == 0


@in_virtual_time
async def test_bodies_that_do_not_come_take_no_room_from_those_that_do() -> None:
    async with running(limit=2) as server:
        large = POST.replace(b"10\r\n", b"900000\r\n") + b"x" * 70_000
        clients = [await server.connect(large if number < 6 else POST + b"01") for number in range(12)]
        await eventually(lambda: server.admission.held.bodies == 6 * 70_000 + 6 * 2, "all are held")
        assert server.app.began == 0
        assert await server.statuses(POST + BODY) == [200]
        clients[8].send(BODY[2:])
        served(await clients[8].answer())
        clients[0].send(b"x" * 830_000)
        served(await clients[0].answer())


@in_virtual_time
async def test_a_client_that_expects_100_continue_is_asked_for_a_body_within_the_limit() -> None:
    async with running(body_limit=10) as server:
        client = await server.connect(expecting(POST))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(BODY)
        served(await client.answer())
        (answer,) = await server.ask(expecting(POST.replace(b"10\r\n", b"11\r\n")))
        refused(answer, 413, "body")


@in_virtual_time
async def test_pipelined_requests_are_bounded_and_keep_their_bodies() -> None:
    async with running(limit=50) as server:
        (*first, last) = await server.ask((POST + BODY) * 5_000)
        assert [status for status, _, _ in first] == [200] * (PIPELINED + 1)
        refused(last, 429, "connection")
        assert server.app.bodies == [BODY] * (PIPELINED + 1)


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        *((sent, 10) for sent in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n", b"\r\n\r\n")),
        *((sent, 30) for sent in (POST, POST + b"012")),
    ],
)
@in_virtual_time
async def test_an_unfinished_request_is_closed_at_its_deadline(sent: bytes, seconds: int) -> None:
    async with running() as server:
        client = await server.connect(sent)
        answer = await client.answer()
        if sent.strip():
            refused(answer, 408, "request")
        assert await client.reader.read() == b""
        assert seconds < asyncio.get_running_loop().time() < seconds + 3


@pytest.mark.parametrize("before", [b"", GET])
@in_virtual_time
async def test_a_byte_now_and_then_does_not_prolong_a_deadline(before: bytes) -> None:
    """Nor do blank lines between requests."""
    async with running() as server:
        client = await server.connect(before)
        if before:
            served(await client.answer())
        answering = asyncio.create_task(client.answer())
        for byte in b"\r\n" * 40 if before else b"GET / HTTP/1.1\r\nX: " + b"x" * 40:
            if not answering.done():
                client.send(bytes([byte]))
                await asyncio.sleep(0.5)
        assert answering.done()
        refused(await answering, 408, "request")


@in_virtual_time
async def test_a_request_that_takes_too_long_is_ended_with_a_sentence() -> None:
    """Its time begins when it is complete."""
    async with running() as server:
        server.app.open.clear()
        client = await server.connect(POST + BODY[:5])
        await asyncio.sleep(25)
        client.send(BODY[5:])
        await asyncio.sleep(25)
        assert server.app.began == server.admission.limiter(*RECOMMEND).active == 1
        answer = await client.answer()
        refused(answer, 503, "service")
        assert answer is not None
        assert answer[1]["retry-after"] == "1"
        assert server.admission.refusals() == {"time": 1}


@in_virtual_time
async def test_connections_beyond_the_limit_may_only_send_probes() -> None:
    """Those that wait longest are closed, so that a probe is answered whoever holds connections."""
    async with running(most=2) as server:
        held = [await server.connect() for _ in range(2 + PROBE_CONNECTIONS - 1)]
        (answer,) = await server.ask(GET)
        refused(answer, 503, "connection")
        for _ in range(3):
            assert await server.statuses(PROBE) == [200]
            held.append(await server.connect())
        refused(await held[2].answer(), 503, "connection")
        assert server.admission.refusals()["overload"] == 4
        for client in held:
            await client.leave()
        await eventually(lambda: not server.server.server_state.connections, "all are gone")
        assert await server.statuses(GET) == [200]


@pytest.mark.fault(38)
@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n", b"Transfer-Encoding: chunked\r\n"])
@in_virtual_time
async def test_an_offer_of_another_protocol_is_declined_and_its_body_read(framing: bytes) -> None:
    """As `curl --http2` sends it, whole or byte by byte; what comes behind it is not read."""
    async with running() as server:
        body = BODY if b"Length" in framing else b"a\r\n0123456789\r\n0\r\n\r\n"
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        head = POST.replace(b"Content-Length: 10\r\n", offer + framing)
        for content in (head + body, head + body + GET):
            (answer,) = await server.ask(content)
            served(answer)
            assert answer[1]["connection"] == "close"
        client = await server.connect()
        for byte in head + body:
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        served(await client.answer())
        assert server.app.bodies == [BODY] * 3


@in_virtual_time
async def test_an_offer_of_another_protocol_without_a_body_or_a_place() -> None:
    async with running(limit=1) as server:
        offer = b"\r\nConnection: Upgrade\r\nUpgrade: websocket"
        assert await server.statuses(GET.replace(b"\r\n\r\n", offer + b"\r\n\r\n")) == [200]
        badly_framed = POST.replace(b"\r\nContent-Length: 10", offer + b"\r\nTransfer-Encoding: gzip")
        refused((await server.ask(badly_framed + b"x"))[-1], 400, "request")
        server.app.open.clear()
        await server.connect(GET)
        await eventually(lambda: server.app.began == 2, "the only place is taken")
        (answer,) = await server.ask(GET.replace(b"\r\n\r\n", offer + b"\r\n\r\n"))
        refused(answer, 503, "service")
        assert answer[1]["connection"] == "close"


@in_virtual_time
async def test_trailers_are_no_headers() -> None:
    async with running() as server:
        trailers = b"Authorization: Bearer x\r\nX-Forwarded-For: 1.2.3.4\r\n"
        assert await server.statuses(CHUNKED + b"1\r\nx\r\n0\r\n" + trailers + b"\r\n" + GET) == [200, 200]
        chunked = (b"transfer-encoding", b"chunked")
        assert server.app.headers == [[(b"host", b"x"), chunked], [(b"host", b"x")]]


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
@in_virtual_time
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
            assert await client.reader.read() == b""
        assert server.admission.refusals()["size"] == 2
        assert server.app.began == 0


@in_virtual_time
async def test_a_body_beyond_the_limit_is_refused_while_it_arrives() -> None:
    """The client reads the refusal though it goes on sending."""
    async with running(body_limit=100_000) as server:
        client = await server.connect(POST.replace(b"10\r\n", b"900000000\r\n") + b"x" * 100_000)
        await eventually(lambda: server.admission.held.bodies == 100_000, "the limit is reached")
        for _ in range(30):
            client.send(b"x" * 10_000)
            await asyncio.sleep(0)
        refused(await client.answer(), 413, "body")
        assert await client.reader.read() == b""
        assert server.app.began == 0


@in_virtual_time
async def test_bodies_of_all_connections_together_are_bounded_and_the_oldest_gives_way() -> None:
    async with running(held=HeldBytes(bodies=100_000)) as server:
        large = POST.replace(b"10\r\n", b"90000\r\n") + b"x" * 40_000
        first, second, third = [await server.connect(large) for _ in range(3)]
        refused(await first.answer(), 503, "service")
        assert server.admission.held.bodies == 80_000
        third.send(b"x" * 50_000)
        served(await third.answer())
        refused(await second.answer(), 503, "service")


@in_virtual_time
async def test_without_a_valid_key_a_body_is_not_waited_for() -> None:
    async with running(is_admissible=lambda scope: scope["path"] != "/closed") as server:
        closed = POST.replace(b"/v1/recommend", b"/closed")
        client = await server.connect(closed)
        served(await client.answer())
        client.send(BODY + GET)
        served(await client.answer())
        client.send(expecting(closed))
        answer = await client.answer()
        served(answer)
        assert answer is not None
        assert answer[1]["connection"] == "close"


@pytest.mark.parametrize(
    ("rest", "status"), [(b"x" * 2_000_000, 413), (b"nonsense", 400)], ids=["too large", "no chunk"]
)
@in_virtual_time
async def test_a_request_that_reads_an_arriving_body_is_refused_beyond_the_limit(
    rest: bytes, status: int
) -> None:
    """As one with a key that is not compared before the application is asked."""
    async with running(is_admissible=lambda _: False) as server:
        server.app.open.clear()
        client = await server.connect(
            (POST.replace(b"10\r\n", b"2000000\r\n") if status == 413 else CHUNKED) + rest
        )
        refused(await client.answer(), status, "body" if status == 413 else "request")


@in_virtual_time
async def test_a_fault_behind_a_request_is_answered_after_it() -> None:
    async with running() as server:
        server.app.open.clear()
        answering = asyncio.create_task(server.ask(POST + BODY + GET + b"nonsense\r\n\r\nHTTP/1.1"))
        await eventually(lambda: server.app.began == 1, "the first has begun")
        server.app.open.set()
        (*first, last) = await answering
        assert [status for status, _, _ in first] == [200, 200]
        refused(last, 400, "request")
        assert server.app.bodies == [BODY, b""]


@pytest.mark.fault(41)
@in_virtual_time
async def test_a_request_is_active_until_its_response_is_sent_unless_another_needs_its_place() -> None:
    async with running(limit=1) as server:
        server.app.size = 8_000_000
        reading = await server.connect(GET)
        limiter, held = server.admission.limiter(*RECOMMEND), server.admission.held
        await eventually(lambda: held.unsent > 1_000_000, "the response waits for its client")
        (answer,) = await server.ask(GET)
        refused(answer, 503, "service")
        whole = await reading.answer()
        assert whole is not None
        assert len(whole[2]) == 8_000_000
        await eventually(lambda: limiter.active == 0 == held.unsent, "the response is sent")
        stalled = await server.connect(GET)
        await eventually(lambda: held.unsent > 1_000_000, "the response waits for its client")
        await asyncio.sleep(STALLED_SECONDS)
        server.app.size = 2
        assert await server.statuses(GET) == [200]
        assert held.unsent == 0
        assert (await stalled.reader.read())[:15] == b"HTTP/1.1 200 OK"


@pytest.mark.fault(41)
@in_virtual_time
async def test_unsent_answers_of_all_connections_together_are_bounded() -> None:
    """A client that reads nothing is cut off in the end."""
    async with running(limit=10, held=HeldBytes(unsent=10_000_000)) as server:
        server.app.size = 8_000_000
        held = server.admission.held
        clients = []
        for _ in range(3):
            clients.append(await server.connect(GET))
            await eventually(lambda: held.unsent > 1_000_000, "the response waits for its client")
            await asyncio.sleep(0.05)
            assert held.unsent <= 10_000_000
        assert len(await clients[0].reader.read()) < 1_000_000  # the oldest gave way
        await asyncio.sleep(33)
        assert held.unsent == 0


@in_virtual_time
async def test_a_body_is_held_until_its_request_has_ended_also_without_its_client() -> None:
    async with running() as server:
        server.app.open.clear()
        client = await server.connect(POST + BODY)
        await eventually(lambda: server.app.began == 1, "it has begun")
        await client.leave()
        await asyncio.sleep(0.1)
        assert server.admission.held.bodies == 10
        server.app.open.set()
        await eventually(lambda: server.admission.held.total == 0, "the body is dropped")


@in_virtual_time
async def test_an_idle_connection_may_ask_a_moment_longer_and_is_closed_then() -> None:
    """While the server drains."""
    async with running() as server:
        asking, idle = [await server.connect(GET) for _ in range(2)]
        for client in (asking, idle):
            served(await client.answer())
        server.server.should_exit = True
        await asyncio.sleep(0.3)
        asking.send(GET)
        served(await asking.answer())
        assert await idle.reader.read() == await asking.reader.read() == b""
        assert 0.5 <= asyncio.get_running_loop().time() < 1.5


@in_virtual_time
async def test_requests_beyond_the_drain_time_get_an_error_response() -> None:
    async with running(drain=20) as server:
        server.app.open.clear()
        client = await server.connect(GET)
        await eventually(lambda: server.app.began == 1, "it has begun")
        server.server.should_exit = True
        answer = await client.answer()
        assert 20 <= asyncio.get_running_loop().time() < 21
        refused(answer, 503, "service")
        assert answer is not None
        assert answer[1]["connection"] == "close"


@in_virtual_time
async def test_a_server_without_connections_stops_at_once() -> None:
    async with running():
        pass
    assert asyncio.get_running_loop().time() < 0.5
