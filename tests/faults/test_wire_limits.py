"""Bytes on the wire that are neither head nor body, bodies of strangers, and calls that anybody may make."""

import json
import socket
import time
from pathlib import Path

import pytest

from tests.faults.test_requests import answer_of, connections, memory_of
from tests.support.service_process import Start
from turret.service.keys.key_file import add_key
from turret.service.keys.keys import new_key, record
from turret.service.wire.counted_protocol import DISCARDED_BYTES, FRAMING_BYTES

HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
BODY = json.dumps({"history": [101], "k": 3}).encode()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def make_key(bundles: Path) -> str:
    key = new_key("shop")
    add_key(bundles.parent / "keys.json", record("shop", key, ["read"]))
    return key


# The system's own buffers of a connection hold up to 10 MB that the service has not read.
MOST_SENT = DISCARDED_BYTES + 16_000_000


@pytest.mark.fault(35)
@pytest.mark.parametrize("line", [b"X: y\r\n" * 10_000, b"x" * 60_000], ids=["lines", "one line"])
def test_trailers_without_end_are_refused_while_they_arrive(start: Start, line: bytes) -> None:
    service = start()
    assert service.client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    before, sent = memory_of(service), 0
    with connections(service, 1, CHUNKED + b"\r\n" + chunk(BODY) + b"0\r\nX: ") as (one,):
        try:
            while sent < MOST_SENT:
                one.sendall(line)
                sent += len(line)
        except OSError:
            pass
        assert b" 400 " in answer_of(one)
    assert FRAMING_BYTES < sent < MOST_SENT
    assert memory_of(service) - before < 10_000_000
    assert service.stop() == (0, "")


@pytest.mark.fault(35)
def test_a_trailer_is_no_header(start: Start, bundles: Path) -> None:
    """Neither a key there lets anybody in, nor is a request refused for having trailers."""
    key = make_key(bundles)
    service = start()
    authorization = f"Authorization: Bearer {key}\r\n".encode()
    for head, trailers, status in (
        (b"", authorization, b" 401 "),
        (authorization, b"X-Sum: 7\r\n", b" 200 "),
    ):
        request = CHUNKED + head + b"Connection: close\r\n\r\n" + chunk(BODY) + b"0\r\n" + trailers + b"\r\n"
        with connections(service, 1, request) as (one,):
            assert status in answer_of(one).partition(b"\r\n")[0]


@pytest.mark.fault(36)
def test_bodies_of_who_has_no_key_are_not_waited_for(start: Start, bundles: Path) -> None:
    """Nor do those who wait to be asked for theirs keep out a client that has a large one."""
    key = make_key(bundles)
    service = start(body_seconds=60)
    half = HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 100
    with connections(service, 200, half) as held:
        for one in held:
            assert b" 401 " in one.recv(65536)
    offer = HEAD + f"Authorization: Bearer {key}\r\n".encode()
    offer += b"Content-Length: 200000\r\nExpect: 100-continue\r\n\r\n"
    with connections(service, 200, offer) as held:
        for one in held:
            assert one.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        large = BODY[:-1] + b" " * 150_000 + b"}"
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        assert service.client.post("/v1/recommend", content=large, headers=headers).status_code == 200


@pytest.mark.fault(37)
@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/metrics", "/readyz", "/nothing"])
def test_probes_are_answered_whatever_anybody_asks(start: Start, path: str) -> None:
    """320 requests at once, again and again: each probe in between is answered with 200."""
    service = start()
    get = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with connections(service, 320, b"") as held, connections(service, 1, b"") as (probe,):
        for _ in range(3):
            for one in held:
                one.sendall(get)
            probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += probe.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.05)
            for one in held:
                one.setblocking(False)
                drain(one)
                one.setblocking(True)


def drain(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        pass


@pytest.mark.fault(38)
def test_a_body_that_comes_with_an_offer_of_http_2_is_read(start: Start) -> None:
    """As `curl --http2` sends it."""
    service = start()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    request = HEAD + offer + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    with connections(service, 1, request) as (one,):
        head, _, body = answer_of(one).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert len(json.loads(body)["items"]) == 3
