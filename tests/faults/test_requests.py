"""Requests that are slow, huge, deep, too many, or no requests; and bytes that are neither head nor body."""

import gzip
import json
import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path

import pytest

from benchmarks.processes import PROXY_FOLDER, local_proxy
from tests.support.service_calls import address, answer_of, children, metric, peak
from tests.support.service_process import Process, Start, plain_client
from tests.support.tools import require
from tests.support.until import until

JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BATCHES = 'turret_requests_total{route="/v1/recommend/batch"'
BODY = json.dumps({"history": [101], "k": 3}).encode()


def answered(service: Process) -> bool:
    """On a new connection: the service may be closing one on which it has refused a body."""
    with plain_client(service.urls[0]) as client:
        return client.post("/v1/recommend", json={"history": [101], "k": 3}).status_code == 200


def send_all(connection: socket.socket, content: bytes) -> None:
    with suppress(OSError):  # it is refused before its end, as it should be
        connection.sendall(content)


HEADS = {
    "endless header": HEAD + b"X: " + b"x" * 20_000_000,
    "many headers": HEAD + b"X: y\r\n" * 5_000 + b"\r\n",
    "long path": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
}


def refuses_heads(service: Process) -> None:
    """Each is refused while it arrives."""
    for name, head in HEADS.items():
        with socket.create_connection(address(service)) as one:
            sender = threading.Thread(target=send_all, args=(one, head))
            sender.start()
            assert b" 431 " in answer_of(one), name
            sender.join()


BOMBS: dict[str, tuple[bytes | Iterable[bytes], int]] = {
    "a million items": (json.dumps({"history": list(range(1_000_000))}).encode(), 413),
    # Without a length: nothing but counting tells how large it is.
    "50 MB": (repeat(b" " * 50_000, 1_000), 413),
    "open lists": (b"[" * 900_000, 400),
    "many equal keys": (b'{"features": {' + b'"a": 1,' * 100_000 + b'"a": 1}}', 400),
    "a long text": (b'{"user_id": "' + b"x" * 900_000 + b'"}', 422),
    "quotes": (b"[" * 40 + b'"' + b'\\"' * 400_000, 400),
}


def refuses_bombs(service: Process) -> None:
    """Each in its turn: 4xx in the one shape of errors, and no 500."""
    for name, (content, status) in BOMBS.items():
        with plain_client(service.urls[0]) as client:
            answer = client.post("/v1/recommend", content=content, headers=JSON)
        assert answer.status_code == status, (name, answer.text)
        assert answer.json()["error"]["message"], name
    packed, headers = gzip.compress(bytes(300_000_000), 1), {**JSON, "Content-Encoding": "gzip"}
    answer = service.client.post("/v1/recommend", content=packed, headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["field"] == "Content-Encoding"


def refuses_trailers(service: Process) -> None:
    """They have no end: the service ends the connection."""
    with socket.create_connection(address(service)) as one:
        one.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX: " % (len(BODY), BODY))
        with suppress(OSError):
            # More than a connection takes in the second that a refused client has.
            for _ in range(800_000):
                one.sendall(b"x" * 60_000)
        assert b" 400 " in answer_of(one)


@pytest.mark.nightly
@pytest.mark.fault(18, 19, 20, 35)
def test_the_memory_of_a_worker_stays_whatever_is_sent(start: Start) -> None:
    """A body has a megabyte at most; the bombs have 350."""
    service = start()
    assert answered(service)
    (worker,) = children(service.process.pid)
    before = peak(worker)
    refuses_heads(service)
    refuses_bombs(service)
    refuses_trailers(service)
    assert peak(worker) - before < 60_000_000
    assert service.stop() == (0, "")


@pytest.mark.nightly
@pytest.mark.fault(17, 36, 41)
def test_the_memory_of_the_service_stays_under_floods_through_the_proxy(start: Start, tmp_path: Path) -> None:
    """4,000 connections with half a body; then 400 that send 16 batches each and read no answer."""
    require("nginx")
    service, limits = start(), (PROXY_FOLDER / "limits.conf").read_text("utf-8")
    assert answered(service)
    (worker,) = children(service.process.pid)
    before = peak(worker)
    half = HEAD + b"Content-Length: 65000\r\n\r\n" + b" " * 64_000
    batch = json.dumps({"requests": [{"history": [101], "k": 60}] * 100}).encode()
    head = HEAD.replace(b"recommend", b"recommend/batch") + b"Content-Length: %d\r\n\r\n" % len(batch)
    with local_proxy(tmp_path / "proxy", [address(service)[1]], limits) as (_, port):
        for count, flood in ((4_000, half), (400, (head + batch) * 16)):
            with ExitStack() as opened:
                for _ in range(count):
                    one = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                    one.setblocking(False)
                    with suppress(OSError):  # what the proxy does not take at once stays unsent
                        one.send(flood)
                if count == 400:
                    until(lambda: metric(service, BATCHES) >= 100, "batches arrive")
                assert answered(service)
    assert peak(worker) - before < 60_000_000
    assert service.stop() == (0, "")
