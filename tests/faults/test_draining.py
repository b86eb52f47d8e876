"""The end of the service: what becomes of clients that keep their connections and don't know /readyz."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import children, until
from tests.support.service_process import HERE, Process, Start

ASK = (
    b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)


def address(service: Process) -> tuple[str, int]:
    host, port = service.urls[0].removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def kept(service: Process, clients: int = 24, pause: float = 0.02) -> Iterator["subprocess.Popen[str]"]:
    """Clients that are being served; the next line of their output is the counts."""
    words = [sys.executable, "-m", "benchmarks.keepalive_clients", str(address(service)[1]), str(clients)]
    with subprocess.Popen([*words, str(pause)], cwd=HERE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        try:
            yield running
        finally:
            running.kill()


def counts(running: "subprocess.Popen[str]") -> dict[str, Any]:
    assert running.stdout is not None
    told: dict[str, Any] = json.loads(running.stdout.readline())
    return told


def refuses(service: Process) -> bool:
    """Whether new connections are refused."""
    try:
        with socket.create_connection(address(service), timeout=1):
            return False
    except TimeoutError:  # left alone, as while the workers close their sockets
        return False
    except ConnectionRefusedError:
        return True


def is_read(connection: socket.socket) -> bool:
    """Whether a worker has accepted a connection and read all that was sent on it.

    By the system's table: an end that is not accepted has no inode, and the column tx:rx counts what waits.
    """
    ends = connection.getpeername()[1], connection.getsockname()[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if tuple(int(field.rpartition(":")[2], 16) for field in fields[1:3]) == ends:
            return fields[9] != "0" and int(fields[4].rpartition(":")[2], 16) == 0
    return False


def answer_on(connection: socket.socket) -> bytes:
    """What comes on a connection until it is closed."""
    connection.settimeout(10)
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.nightly
@pytest.mark.fault(54)
@pytest.mark.parametrize(
    ("number", "delay", "pause"),
    [
        (signal.SIGTERM, 0.3, 0.02),
        (signal.SIGTERM, 0.0, 0.02),
        (signal.SIGTERM, 0.0, 0.2),
        (signal.SIGINT, 60.0, 0.02),
    ],
)
def test_clients_that_keep_connections_lose_no_request(
    start: Start, number: int, delay: float, pause: float
) -> None:
    """`python -m benchmarks.draining` does this fifty times."""
    service = start(workers=2, drain_delay=delay)
    with kept(service, pause=pause) as clients:
        time.sleep(0.2)
        begun = time.monotonic()
        service.process.send_signal(number)
        assert service.process.wait(20) == 0
        took = time.monotonic() - begun
        told = counts(clients)
    assert told["failed"] == {}
    assert told["left"] == 0
    assert set(told["statuses"]) == {"200"}
    # The longest of them pauses for twice `pause`; nothing else is under way.
    assert took < (delay if number == signal.SIGTERM else 0) + 2.5


@pytest.mark.fault(54)
def test_while_it_drains_each_answer_is_the_last_of_its_connection(start: Start) -> None:
    service = start(workers=2, drain_delay=60)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: service.client.get("/readyz").status_code == 503)
    for _ in range(4):  # of both workers
        with socket.create_connection(address(service)) as connection:
            connection.sendall(ASK + ASK)  # those that were sent together are answered
            answers = answer_on(connection)
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert answers.lower().count(b"connection: close") == 1
    assert service.stop(signal.SIGINT) == (0, "")


@pytest.mark.fault(54)
def test_a_request_that_has_begun_to_come_is_answered(start: Start) -> None:
    """Half a head on a new connection and on a kept one, and half a body."""
    service = start(workers=2)
    with ExitStack() as opened:  # a socket left open by a failure would be an error of the next test
        halves = [opened.enter_context(socket.create_connection(address(service))) for _ in range(3)]
        halves[0].sendall(ASK)
        while not halves[0].recv(65536).endswith(b"}"):
            pass
        for connection, sent in zip(halves, (20, 20, len(ASK) - 1), strict=True):
            connection.sendall(ASK[:sent])
        until(lambda: all(map(is_read, halves)))
        service.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(service))
        for connection, sent in zip(halves, (20, 20, len(ASK) - 1), strict=True):
            connection.sendall(ASK[sent:])
            answer = answer_on(connection)
            assert b"HTTP/1.1 200 OK" in answer
            assert b"connection: close" in answer.lower()
            connection.close()
    assert service.process.wait(3) == 0


@pytest.mark.fault(55)
def test_a_worker_that_is_killed_while_it_drains_is_replaced(start: Start) -> None:
    """Requests are still accepted then, and with one worker nobody would be there."""
    service = start(drain_delay=60)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: service.client.get("/readyz").status_code == 503)
    (worker,) = children(service.process.pid)
    os.kill(worker, signal.SIGKILL)
    until(lambda: children(service.process.pid) not in ([], [worker]))
    assert service.client.post("/v1/recommend", json={}).status_code == 200
    assert service.client.get("/readyz").status_code == 503
    status, _ = service.stop()  # the second signal
    assert status == 0


@pytest.mark.nightly
@pytest.mark.fault(55)
def test_a_worker_that_is_stopped_takes_no_further_connections_along(start: Start) -> None:
    """The system completes connections for as long as any process listens. Here new clients are refused
    within seconds, those of the other worker lose nothing, and the service ends all the same."""
    service = start(workers=2, drain_seconds=2)
    stopped, awake = children(service.process.pid)
    with kept(service) as clients:
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(0.5)
        service.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(service), 5)
        until(lambda: awake not in children(service.process.pid), 5)
        assert stopped in children(service.process.pid)
        assert service.process.wait(20) == 0
        told = counts(clients)
    # Only requests that the stopped one had: at most one of each client that it had.
    assert sum(told["failed"].values()) <= 24
    assert told["connecting_s"] < 5
