"""Requests that are slow, huge, deep, or no requests."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.service_process import Process, Start

JSON = {"Content-Type": "application/json"}
POST = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def address(service: Process) -> tuple[str, int]:
    parts = urlsplit(service.urls[0])
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


@contextmanager
def connections(service: Process, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(address(service), timeout=20))
            held[-1].sendall(first)
        yield held
    finally:
        for one in held:
            one.close()


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the connection is closed."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def memory_of(service: Process) -> int:
    """The most that a worker ever had in memory, in bytes."""
    pids = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    lines = [Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1] for pid in pids]
    return max(int(line.split()[0]) for line in lines) * 1024


@pytest.mark.nightly
@pytest.mark.fault(18)
@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"POST /v1/reco",
        POST + b"X: y\r\n",
        POST + b"Content-Length: 100\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
    ids=["half-open", "path", "headers", "body", "chunks"],
)
def test_slow_clients_are_given_up_and_nobody_else_waits(start: Start, first: bytes) -> None:
    """Two hundred connections that never finish; others are answered, and all two hundred are closed."""
    service = start(head_seconds=1.5, body_seconds=2.5)
    with connections(service, 200, first) as held:
        began = time.monotonic()
        slowest = 0.0
        while time.monotonic() - began < 1.5:
            asked = time.perf_counter()
            assert service.client.post("/v1/recommend", json={"history": [101], "k": 3}).status_code == 200
            slowest = max(slowest, time.perf_counter() - asked)
        assert slowest < 1.0
        answers = [answer_of(one) for one in held]
        assert time.monotonic() - began < 10
    if first:
        assert all(b" 408 " in one and b'"request"' in one for one in answers)
    else:
        assert not any(answers)
    assert service.stop() == (0, "")


@pytest.mark.fault(18)
def test_a_byte_a_moment_keeps_no_connection(start: Start) -> None:
    service = start(head_seconds=1)
    with connections(service, 20, POST) as held:
        deadline = time.monotonic() + 6
        open_still = list(held)
        while open_still and time.monotonic() < deadline:
            for one in list(open_still):
                try:
                    one.sendall(b"x")
                except (BrokenPipeError, ConnectionResetError):
                    open_still.remove(one)
            time.sleep(0.05)
        assert not open_still


@pytest.mark.fault(18)
@pytest.mark.parametrize(
    "head",
    [
        POST + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
        POST + b"X: " + b"x" * 20_000_000,
        POST + b"X: y\r\n" * 5_000 + b"\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["long header", "endless header", "many headers", "long path"],
)
def test_huge_heads_are_refused_while_they_arrive(start: Start, head: bytes) -> None:
    service = start()
    before = memory_of(service)
    with connections(service, 1, b"") as (one,):
        sender = threading.Thread(target=send_all, args=(one, head))
        sender.start()
        assert b" 431 " in answer_of(one)
        sender.join()
    assert memory_of(service) - before < 20_000_000
    assert service.client.get("/livez").status_code == 200
    assert service.stop() == (0, "")


def send_all(connection: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # it is refused before its end, as it should be
        connection.sendall(content)


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
    "equal keys": (b'{"k": 1, "k": 2}', {400}),
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


@pytest.mark.fault(19)
@pytest.mark.fault(20)
def test_bombs_are_refused_quickly_and_small(start: Start) -> None:
    """Each in its turn, on two calls: 4xx in the one shape of errors, no 500, and the memory stays."""
    service = start()
    assert service.client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    before = memory_of(service)
    for name, (bomb, statuses) in BOMBS.items():
        path = "/v1/recommend/batch" if "batch" in name else "/v1/recommend"
        began = time.perf_counter()
        content = bomb() if callable(bomb) else bomb
        answer = service.client.post(path, content=content, headers=JSON)
        assert answer.status_code in statuses, (name, answer.text)
        assert answer.json()["error"]["message"], name
        assert time.perf_counter() - began < 3, name
    assert memory_of(service) - before < 60_000_000
    assert service.client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    assert service.stop() == (0, "")


@pytest.mark.fault(19)
def test_a_packed_bomb_is_not_opened(start: Start) -> None:
    service = start()
    before = memory_of(service)
    bomb = gzip.compress(bytes(300_000_000), 1)
    answer = service.client.post("/v1/recommend", content=bomb, headers={**JSON, "Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert answer.json()["error"]["field"] == "Content-Encoding"
    assert memory_of(service) - before < 10_000_000


@pytest.mark.fault(20)
@pytest.mark.parametrize("k", [59, 60, 61, 1000])
def test_fewer_items_come_where_there_are_no_more_and_that_is_said(start: Start, k: int) -> None:
    """The catalog has 60, one of them seen: every other one comes, once, and none of another world."""
    service = start()
    for body in (
        {"history": [101], "k": k},
        {"k": k},
        {"history": [101], "exclude": list(range(100, 150)), "k": k},
    ):
        answer = service.client.post("/v1/recommend", json=body).json()
        left = set(range(100, 160)) - set(body.get("history", ())) - set(body.get("exclude", ()))  # type: ignore[call-overload]
        found = [item["id"] for item in answer["items"]]
        assert len(found) == len(set(found)) == min(k, len(left))
        assert set(found) <= left
        assert answer.get("exhausted", False) is (len(left) < k)
    similar = service.client.get(f"/v1/items/101/similar?k={k}").json()
    assert len({item["id"] for item in similar["items"]}) == min(k, 59)
