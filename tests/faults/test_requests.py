"""Requests that are slow, huge, deep, too many, or no requests; and bytes that are neither head nor body."""

import gzip
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import SharedService
from tests.support.service_calls import address, children, peak
from tests.support.service_process import Process, Start, deadlines, plain_client
from tests.support.until import until
from turret.service.http.guard import FRAMING_BYTES
from turret.service.keys.keys import add_key, new_key, record

JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
BODY = json.dumps({"history": [101], "k": 3}).encode()
# More than a connection takes in the second that a refused client has.
MOST_SENT = 50_000_000_000


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


@contextmanager
def connections(service: Process, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, on each of which the same was sent."""
    with ExitStack() as opened:
        held = [opened.enter_context(socket.create_connection(address(service))) for _ in range(count)]
        for one in held:
            one.sendall(first)
        yield held


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def read_answer(connection: socket.socket) -> HTTPResponse:
    """The next answer on a connection, read to its end."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer


def answered(service: Process) -> bool:
    """On a new connection: the service may be closing one on which it has refused a body."""
    with plain_client(service.urls[0]) as client:
        return client.post("/v1/recommend", json={"history": [101], "k": 3}).status_code == 200


def send_all(connection: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # it is refused before its end, as it should be
        connection.sendall(content)


@pytest.mark.nightly
@pytest.mark.fault(18)
def test_slow_clients_are_given_up_and_nobody_else_waits(start: Start) -> None:
    """Two hundred connections that never finish; others are answered, and all two hundred are closed."""
    service = start(before=deadlines(head=1.5, body=2.5, send=30))
    begun = (
        b"",
        b"POST /v1/reco",
        HEAD + b"X: y\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{",
        CHUNKED + b"\r\n1\r\n{\r\n",
    )
    with ExitStack() as opened:
        held = [opened.enter_context(connections(service, 40, first)) for first in begun]
        for _ in range(50):
            assert answered(service)
        half_open, *others = [[answer_of(one) for one in some] for some in held]
    assert not any(half_open)
    assert all(b" 408 " in one for some in others for one in some)
    assert service.stop() == (0, "")


HEADS = {
    "long header": HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "endless header": HEAD + b"X: " + b"x" * 20_000_000,
    "many headers": HEAD + b"X: y\r\n" * 5_000 + b"\r\n",
    "long path": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
}


def refuses_heads(service: Process) -> None:
    """Each is refused while it arrives."""
    for name, head in HEADS.items():
        with connections(service, 1, b"") as (one,):
            sender = threading.Thread(target=send_all, args=(one, head))
            sender.start()
            assert b" 431 " in answer_of(one), name
            sender.join()


def chunks(size: int) -> Iterator[bytes]:
    """A body without a length, so that nothing but counting tells how large it is."""
    for _ in range(size // 65536):
        yield b" " * 65536


BOMBS: dict[str, tuple[Any, set[int]]] = {
    "a million items": (json.dumps({"history": list(range(1_000_000))}).encode(), {413}),
    "a history of ten thousand": (json.dumps({"history": list(range(10_000))}).encode(), {422}),
    "50 MB": (lambda: chunks(50_000_000), {413}),
    "deep lists": (b'{"history":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {400}),
    "deep objects": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, {400}),
    "open lists": (b"[" * 900_000, {400}),
    "many equal keys": (b'{"features": {' + b'"a": 1,' * 100_000 + b'"a": 1}}', {400}),
    "NaN": (b'{"k": NaN}', {400}),
    "Infinity": (b'{"features": {"age": Infinity}}', {400}),
    "1e400": (b'{"features": {"age": 1e400}}', {400, 422}),
    "a lone surrogate": (b'{"user_id": "\\ud800"}', {400}),
    "a huge integer": (b'{"history": [' + b"9" * 100_000 + b"]}", {400, 422}),
    "no UTF-8": (b'{"user_id": "\xff\xfe"}', {400}),
    "a long text": (b'{"user_id": "' + b"x" * 900_000 + b'"}', {422}),
    "quotes": (b"[" * 40 + b'"' + b'\\"' * 400_000, {400}),
    "k of zero": (b'{"k": 0}', {422}),
    "k below zero": (b'{"k": -1}', {422}),
    "k of a billion": (b'{"k": 1000000000}', {422}),
    "k of a half": (b'{"k": 1.5}', {422}),
    "a batch of a thousand": (b'{"requests": [' + b"{}," * 999 + b"{}]}", {422}),
}


def refuses_bombs(service: Process) -> None:
    """Each in its turn, on two calls: 4xx in the one shape of errors, and no 500."""
    for name, (bomb, statuses) in BOMBS.items():
        path = "/v1/recommend/batch" if "batch" in name else "/v1/recommend"
        content = bomb() if callable(bomb) else bomb
        with plain_client(service.urls[0]) as client:
            answer = client.post(path, content=content, headers=JSON)
        assert answer.status_code in statuses, (name, answer.text)
        assert answer.json()["error"]["message"], name
    packed = gzip.compress(bytes(300_000_000), 1)
    answer = service.client.post(
        "/v1/recommend", content=packed, headers={**JSON, "Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415
    assert answer.json()["error"]["field"] == "Content-Encoding"


@pytest.mark.process
@pytest.mark.fault(19, 20)
def test_bombs_are_refused(service: SharedService) -> None:
    refuses_bombs(service)
    assert answered(service)


def send_trailers(service: Process, line: bytes) -> int:
    """Send trailers without end until the service ends the connection; gives how many bytes were sent."""
    sent = 0
    with connections(service, 1, CHUNKED + b"\r\n" + chunk(BODY) + b"0\r\nX: ") as (one,):
        with suppress(OSError):
            while sent < MOST_SENT:
                one.sendall(line)
                sent += len(line)
        assert b" 400 " in answer_of(one)
    return sent


@pytest.mark.process
@pytest.mark.fault(35)
@pytest.mark.parametrize("line", [b"X: y\r\n" * 10_000, b"x" * 60_000], ids=["lines", "one line"])
def test_trailers_without_end_are_refused_while_they_arrive(service: SharedService, line: bytes) -> None:
    assert FRAMING_BYTES < send_trailers(service, line) < MOST_SENT
    assert answered(service)


@pytest.mark.nightly
@pytest.mark.fault(18, 19, 35)
def test_the_memory_of_a_worker_stays_whatever_is_sent(start: Start) -> None:
    """A body has a megabyte at most; the bombs have 350."""
    service = start()
    assert answered(service)
    (worker,) = children(service.process.pid)
    before = peak(worker)
    refuses_heads(service)
    refuses_bombs(service)
    send_trailers(service, b"x" * 60_000)
    assert peak(worker) - before < 60_000_000
    assert service.stop() == (0, "")


@pytest.mark.nightly
@pytest.mark.fault(35, 36)
def test_bodies_of_who_has_no_key_are_not_waited_for(start: Start, bundles: Path) -> None:
    """Nor is a trailer a header: a key there lets nobody in, and other trailers are no reason to refuse."""
    key = new_key("shop")
    add_key(bundles.parent / "keys.json", record("shop", key, ["read"]))
    service = start(before=deadlines(head=10, body=600, send=30))
    authorization = f"Authorization: Bearer {key}\r\n".encode()
    for head, trailers, status in (
        (b"", authorization, b" 401 "),
        (authorization, b"X-Sum: 7\r\n", b" 200 "),
    ):
        request = CHUNKED + head + b"Connection: close\r\n\r\n" + chunk(BODY) + b"0\r\n" + trailers + b"\r\n"
        with connections(service, 1, request) as (one,):
            assert status in answer_of(one).partition(b"\r\n")[0]
    with connections(service, 200, HEAD + b"Content-Length: 60000\r\n\r\n" + b" " * 100) as held:
        for one in held:
            assert b" 401 " in one.recv(65536)
    # Nor do those who wait to be asked for theirs keep out a client that has a large one.
    offer = HEAD + authorization + b"Content-Length: 200000\r\nExpect: 100-continue\r\n\r\n"
    with connections(service, 200, offer) as held:
        for one in held:
            assert one.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        large = BODY[:-1] + b" " * 150_000 + b"}"
        headers = {"Authorization": f"Bearer {key}", **JSON}
        assert service.client.post("/v1/recommend", content=large, headers=headers).status_code == 200


@pytest.mark.nightly
@pytest.mark.fault(17)
def test_more_than_it_can_carry_is_refused_with_a_time_to_come_back(start: Start) -> None:
    """Four hundred ask while the worker is stopped: each is answered or told to come back, and after them all
    are answered again. What is served, and how soon is refused, are figures of `benchmarks.overload`."""
    service = start(queue_limit=8)
    (worker,) = children(service.process.pid)
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    served = refused = 0
    for _ in range(3):
        with connections(service, 400, request) as held:
            for one in held:  # it has accepted all of them, so it finds their next requests at one time
                read_answer(one)
            os.kill(worker, signal.SIGSTOP)
            for one in held:
                one.sendall(request)
            os.kill(worker, signal.SIGCONT)
            for one in held:
                answer = read_answer(one)
                if answer.status == 200:
                    served += 1
                else:
                    assert answer.status == 503
                    assert answer.headers["Retry-After"]
                    refused += 1
    assert served + refused == 1_200
    assert served > 0
    assert refused > 0
    until(lambda: answered(service), "it is over")
    assert service.stop() == (0, "")
