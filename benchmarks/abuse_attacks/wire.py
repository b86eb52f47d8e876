"""HTTP/1.1 as bytes on sockets: what no client library would send, and the answers to it."""

import json
import select
import socket
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Address = tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """An answer; status 0: the connection was closed without one, or nothing came in time."""

    status: int = 0
    head: bytes = b""
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body read as JSON; {} where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


def head(method: str, path: str, *lines: str, key: str | None = None) -> bytes:
    """Write the head of a request, with a key if one is given."""
    given = [f"{method} {path} HTTP/1.1", "Host: abuse"]
    given += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*given, *lines, "", ""]).encode("latin-1")


def post(path: str, body: object, *lines: str, key: str | None = None) -> bytes:
    """Write a whole POST; `body` is bytes, or what becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sized = ("Content-Type: application/json", f"Content-Length: {len(content)}")
    return head("POST", path, *sized, *lines, key=key) + content


def dial(address: Address, receive_buffer: int | None = None, timeout: float = 20.0) -> socket.socket:
    """Connect; a small `receive_buffer` (bytes) leaves answers that aren't read with the service."""
    connection = socket.socket()
    try:
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(timeout)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def read_answer(connection: socket.socket) -> Answer:
    """Read one answer, whose length its head tells, and nothing of the next one."""
    try:
        first = _read_head(connection)
        status = int(first[9:12])
        missing = 0 if status == 100 else _length(first)
        parts = []
        while missing > 0 and (part := connection.recv(min(missing, 1 << 20))):
            parts.append(part)
            missing -= len(part)
        return Answer(status, first, b"".join(parts))
    except (OSError, ValueError):
        return Answer()


def ask(address: Address, request: bytes, timeout: float = 20.0) -> Answer:
    """Send a request on a connection of its own."""
    try:
        with dial(address, timeout=timeout) as connection:
            with suppress(OSError):  # it may be answered before its end
                connection.sendall(request)
            return read_answer(connection)
    except OSError:
        return Answer()


def asked_on(connection: socket.socket, request: bytes) -> Answer:
    """Send a request on an open connection."""
    try:
        connection.sendall(request)
    except OSError:
        return Answer()
    return read_answer(connection)


def send_until_closed(connection: socket.socket, parts: Iterable[bytes]) -> int:
    """Send parts until there are no more or the other side ends it; returns the bytes that were sent."""
    sent = 0
    with suppress(OSError):
        for part in parts:
            connection.sendall(part)
            sent += len(part)
    return sent


def hang_up(connections: Iterable[socket.socket]) -> None:
    """Close connections."""
    for one in connections:
        one.close()


def statuses(answers: Iterable[Answer]) -> Counter[str]:
    """Count answers by status; `closed` where there was none."""
    return Counter(str(one.status) if one.status else "closed" for one in answers)


def _read_head(connection: socket.socket) -> bytes:
    """Read up to the empty line. Raises ValueError where none comes."""
    seen, late = 0, time.monotonic() + 20
    while time.monotonic() < late:
        there = connection.recv(65536, socket.MSG_PEEK)
        end = there.find(b"\r\n\r\n")
        if end >= 0:
            return connection.recv(end + 4)[:-4]
        if len(there) == seen and (not there or _has_ended(connection)):
            raise ValueError("no answer came")
        seen = len(there)
        time.sleep(0.001)  # as a look at what is there returns at once, also when nothing was added
    raise ValueError("the head of the answer did not end")


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other side has closed, or reset, a connection of which bytes are left to read."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _length(first: bytes) -> int:
    lowered = first.lower()
    at = lowered.find(b"content-length:")
    return int(lowered[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
