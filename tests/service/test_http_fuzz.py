"""The guard of one connection under valid, nearly valid and damaged HTTP/1.1."""

import asyncio
from collections import Counter
from typing import NamedTuple

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.small_server import Application, running
from tests.support.virtual_time import run

CRLF = b"\r\n"
LIMIT = 20_000  # of bodies
QUERY, ALLOWED, FORBIDDEN = b'{"history": [1, 2]}', b'{"events": ["allowed"]}', b'{"events": ["forbidden"]}'
KEY, JSON = b"Authorization: Bearer right", b"Content-Type: application/json"


# --- What is sent


class Sent(NamedTuple):
    """A request: its bytes and method; the size of its body where it is valid; whether nothing may follow."""

    raw: bytes
    method: bytes = b"POST"
    body: int | None = None
    ends: bool = False


def head(target: bytes, *lines: bytes, method: bytes = b"POST") -> bytes:
    return CRLF.join((method + b" " + target + b" HTTP/1.1", b"Host: x", *lines, b"", b""))


def counted(target: bytes, body: bytes, *lines: bytes, method: bytes = b"POST") -> Sent:
    content = head(target, *lines, JSON, b"Content-Length: %d" % len(body), method=method)
    return Sent(content + body, method, len(body))


def chunked(
    target: bytes, body: bytes, *lines: bytes, extension: bytes = b"", trailers: tuple[bytes, ...] = ()
) -> Sent:
    content, step = head(target, *lines, JSON, CHUNKED), 50 if len(body) < 3000 else 4096
    for at in range(0, len(body), step):
        chunk = body[at : at + step]
        content += b"%x" % len(chunk) + extension + CRLF + chunk + CRLF
    return Sent(content + b"0" + CRLF + b"".join(line + CRLF for line in trailers) + CRLF, b"POST", len(body))


ASK, EVENTS, CHUNKED = b"/v1/recommend", b"/v1/events", b"Transfer-Encoding: chunked"
# A whole request that would store the forbidden event, if anything ran it.
SMUGGLED = counted(EVENTS, FORBIDDEN, KEY).raw
NOISE = (
    *(b"X-Empty:", b"X-Space:   \t ", b"X-Same: 1", b"x-same: 2", b"X-Obs: \xfc\xff", b"TE: trailers"),
    *(b"!#$%&'*+-.^_`|~: token", b"Cookie: " + b"c" * 3000, b"Connection: , ,x", b"Expect: nothing"),
)
UPGRADE = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
# Valid ones; some carry a request or a key that must not count where it is data.
VALID = [
    *(framed(ASK, QUERY, KEY, *NOISE) for framed in (counted, chunked)),
    *(framed(EVENTS, ALLOWED, KEY) for framed in (counted, chunked)),
    *(counted(ASK, QUERY + b" " * size, KEY) for size in (9_000, 30_000, 300_000)),
    *(Sent(head(path, *NOISE, method=b"GET"), b"GET", 0) for path in (b"/livez", b"/nowhere", b"/x?a=b")),
    *(Sent(head(b"/readyz", method=method), method, 0) for method in (b"HEAD", b"OPTIONS", b"DELETE")),
    Sent(counted(ASK, QUERY, KEY, b"Connection: close").raw + SMUGGLED, b"POST", len(QUERY), True),
    *(framed(target, SMUGGLED, KEY) for framed in (counted, chunked) for target in (ASK, b"/nowhere")),
    counted(b"/livez", SMUGGLED, method=b"GET"),
    counted(ASK, SMUGGLED, KEY, b"Expect: 100-continue"),
    counted(ASK, SMUGGLED, b"Content-Encoding: gzip"),
    chunked(EVENTS, FORBIDDEN, trailers=(KEY, b"X-Forwarded-For: 10.9.9.9")),
    chunked(EVENTS, FORBIDDEN, extension=b';a="' + KEY + b'"'),
    counted(EVENTS + b"?" + KEY.replace(b" ", b"%20"), FORBIDDEN),
]
LENGTHS = (b"+0", b"-0", b"0x0", b"0, 5", b"0;", b"0 0", b"\xb2", b"1e0", b"0_0", b"99999999999999999999")
CODINGS = (b"identity", b"xchunked", b"chunked, identity", b"chunked, gzip", b"\x0bchunked", b"chunke", b"")
SPACED = (b"Content-Length : 300", b"Content-Length\t: 300", b"Transfer-Encoding : chunked", b": x", b"x")
SIZES = (b"", b"g", b"-1", b"+1", b"0x1", b"1 1", b" 1", b"1_0", b"1" + b"0" * 16, b"f" * 40, b"1\x00")
END = b"0" + CRLF * 2
# RFC 9112 has their framing refused; behind each is a request where a wrong reading would find it.
REFUSED = [
    Sent(head(ASK, JSON, *lines) + between + SMUGGLED, ends=True)
    for lines, between in (
        *(((b"Content-Length: " + length,), b"") for length in LENGTHS),
        *(((b"Transfer-Encoding: " + coding,), b"") for coding in CODINGS),
        *(((line,), b"") for line in SPACED),
        ((b"Content-Length: 0", b"Content-Length: 5"), b""),
        ((b"Content-Length: 4", CHUNKED), END),
        ((CHUNKED, b"Content-Length: 4"), END),
        ((CHUNKED, b"Transfer-Encoding: identity"), END),
        *(((CHUNKED,), size + CRLF + b"{" + CRLF + END) for size in SIZES),
        *(((CHUNKED,), b"1" + CRLF + b"{" + end + END) for end in (b"", b"\n", b"\r", b"}}")),
    )
] + [Sent(framed(ASK, SMUGGLED, KEY, *UPGRADE).raw + SMUGGLED, ends=True) for framed in (counted, chunked)]
TRAILERS = (
    *((line,) for line in (b"Content-Length: 0", b"Host: y", b"X", b": y", b" folded", b"X: \x00")),
    *((b"X-Trailer: 0123456789",) * times for times in (9, 20_000)),
    *((b"X: " + b"x" * size,) for size in (9_000, 400_000)),
)
# May be answered in any well-formed way.
LOOSE = [
    Sent(head(EVENTS, b"X-Folded: a", b" " + KEY, b"Content-Length: %d" % len(FORBIDDEN)) + FORBIDDEN),
    *(Sent(chunked(ASK, SMUGGLED, KEY, trailers=trailers).raw) for trailers in TRAILERS),
    *(Sent(chunked(ASK, QUERY, KEY, extension=b";a=" + b"e" * size).raw) for size in (1, 90, 30_000)),
]
# More requests than a connection may have unanswered.
MANY = [Sent(head(b"/livez", method=b"GET"), b"GET", 0)] * 200


class Case(NamedTuple):
    """The segments of one connection, its end, and the sizes of bodies if all requests are valid."""

    segments: list[bytes]
    methods: list[bytes]
    ending: str = "wait"
    bodies: list[int | None] | None = None


def case_of(requests: list[Sent]) -> Case:
    sizes = [one.body for one in requests]
    segments = [b"".join(one.raw for one in requests)]
    return Case(segments, [one.method for one in requests], bodies=None if None in sizes else sizes)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pools = st.sampled_from(VALID) | st.sampled_from(REFUSED) | st.sampled_from(LOOSE)
    requests = draw(st.lists(pools, min_size=1, max_size=6) | st.just(MANY))
    last = next((place for place, one in enumerate(requests) if one.ends), len(requests))
    case = case_of(requests[: last + 1])
    (content,) = case.segments
    damage = draw(st.sampled_from(["none"] * 6 + ["cut", "bytes"]))
    if damage == "cut":
        content = content[: draw(st.integers(0, len(content)))]
    elif damage == "bytes" and b"forbidden" not in content:  # which a single byte could rightly let in
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=3)) + content[at + draw(st.integers(0, 3)) :]
    cuts = sorted(draw(st.lists(st.integers(0, len(content)), max_size=6)))
    if len(content) < 1500 and draw(st.booleans()):
        cuts = [*range(1, len(content))]
    segments = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True) if a < b]
    ending = draw(st.sampled_from(["wait"] * 5 + ["half", "reset"]))
    return case._replace(segments=segments, ending=ending, bodies=case.bodies if damage == "none" else None)


# --- What has to hold


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]

    @property
    def is_last(self) -> bool:
        return self.headers.get(b"connection") == b"close"


def read_answers(received: bytes, methods: list[bytes], is_cut_off: bool) -> list[Answer]:
    """Read answers by a strict parser that shares nothing with the service; the last may be incomplete."""
    answers: list[Answer] = []
    while received:
        assert not answers or not answers[-1].is_last, received[:200]
        client = h11.Connection(h11.CLIENT)
        method = methods[len(answers)] if len(answers) < len(methods) else b"GET"
        # A head that could not be read is answered with a body.
        method = method if method == b"HEAD" and not received.startswith(b"HTTP/1.1 4") else b"GET"
        client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(received)
        answer = None
        while (event := client.next_event()) is not h11.NEED_DATA and not isinstance(event, h11.EndOfMessage):
            if isinstance(event, h11.Response):
                answer = Answer(event.status_code, dict(event.headers))
        if answer is None or event is h11.NEED_DATA:
            assert is_cut_off, f"the answer has no end: {received[:200]!r}"
            break
        answers.append(answer)
        received = client.trailing_data[0]
    return answers


async def drive(case: Case) -> tuple[Application, Counter[int]]:
    """Send a case to a server; check all that holds of any, and return what was run and the statuses."""
    async with running(body_limit=LIMIT) as server:
        client = await server.connect()
        reading = asyncio.create_task(client.rest())
        for segment in case.segments:
            if not reading.done():
                client.send(segment)
            for _ in range(2):  # the server reads it by itself
                await asyncio.sleep(0)
        if case.ending == "reset":
            await client.leave()
        elif case.ending == "half":
            client.end()
        answers = read_answers(await reading, case.methods, case.ending != "wait")
    assert (KEY.partition(b": ")[2], FORBIDDEN) not in server.app.requests
    assert not [one for one in answers if one.status >= 500 and one.status != 503]
    if case.bodies is not None and case.ending == "wait":
        assert len(answers) == len(case.bodies) or answers[-1].is_last
        for size, one in zip(case.bodies, answers, strict=False):
            assert one.headers.get(b"x-body", b"%d" % (size or 0)) == b"%d" % (size or 0)
    return server.app, Counter(one.status for one in answers)


@pytest.mark.fault(39, 40)
@settings(max_examples=6 * settings.default.max_examples)  # type: ignore[union-attr]  # there is a profile
@given(cases())
def test_no_sequence_of_bytes_breaks_the_invariants_of_a_connection(case: Case) -> None:
    """No exception, no endless connection, no lost or doubled answer, no request that the bytes only hide."""
    run(drive(case))


def test_each_request_alone_keeps_them_too_in_one_piece_and_byte_by_byte() -> None:
    statuses, allowed = Counter[int](), 0
    for requests in (*([one] for one in (*VALID, *REFUSED, *LOOSE)), MANY):
        case = case_of(requests)
        (content,) = case.segments
        pieces = [[content], [bytes([byte]) for byte in content]] if len(content) < 1500 else [[content]]
        for segments in pieces:
            app, seen = run(drive(case._replace(segments=segments)))
            allowed += app.requests.count((KEY.partition(b": ")[2], ALLOWED))
            statuses += seen
    assert allowed == 4, "two requests, each in two ways"
    assert {200, 400, 413, 415} <= statuses.keys()
