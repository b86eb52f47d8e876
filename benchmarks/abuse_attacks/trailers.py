"""Chunked bodies: trailers, extensions and chunks that are counted by nobody, or taken for headers."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator

from benchmarks.abuse_attacks.attack import NotCarriedOutError, Outcome, Scene
from benchmarks.abuse_attacks.target import HISTORY
from benchmarks.abuse_attacks.wire import ask, dial, head, read_answer, send_until_closed, statuses

_BODY = b'{"history":%s,"k":3}' % str(HISTORY).encode()
_CHUNKED = ("Content-Type: application/json", "Transfer-Encoding: chunked")
_BLOCK = 1_000_000


def many_trailer_lines(scene: Scene) -> Outcome:
    """154 MB of trailer lines on one connection without a key."""
    lines = b"".join(b"x%06d: short\r\n" % number for number in range(_BLOCK // 16))  # each an object
    return _endless(scene, _chunked(_BODY) + b"0\r\n", lines, 154_000_000)


def endless_trailer_line(scene: Scene) -> Outcome:
    """One trailer line that doesn't end."""
    return _endless(scene, _chunked(_BODY) + b"0\r\nx: ", b"y" * _BLOCK, 154_000_000)


def endless_chunk_extension(scene: Scene) -> Outcome:
    """One extension of a chunk that doesn't end."""
    return _endless(scene, b"5;x=", b"y" * _BLOCK, 154_000_000)


def chunk_extensions(scene: Scene) -> Outcome:
    """Chunks of one byte, each with an extension of 16 KB."""
    chunk = b"1;x=" + b"y" * 16_000 + b"\r\n \r\n"
    return _endless(scene, b"", chunk * 60, 100_000_000)


def one_byte_chunks(scene: Scene) -> Outcome:
    """Bodies just below the limit in chunks of one byte, on four connections at once."""
    target, answers = scene.target, Counter[str]()
    body = (
        head("POST", "/v1/recommend", *_CHUNKED, key=target.reader) + b"1\r\n \r\n" * 990_000 + b"0\r\n\r\n"
    )
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        connections = [dial(target.address) for _ in range(4)]
        for connection in connections:
            send_until_closed(connection, [body])
        answers += statuses(map(read_answer, connections))
        for connection in connections:
            connection.close()
        if scene.quick:
            break
    return Outcome(answers, held=set(answers) <= {"400", "413", "503"})


def key_in_trailer(scene: Scene) -> Outcome:
    """A right key in a trailer, after a body that came without one."""
    target = scene.target
    begin = head("POST", "/v1/recommend", *_CHUNKED, "Connection: close") + _chunked(_BODY)
    trailer = f"0\r\nAuthorization: Bearer {target.reader}\r\n\r\n".encode()
    answers = statuses(ask(target.address, begin + trailer) for _ in range(10))
    if set(statuses([ask(target.address, begin + b"0\r\n\r\n")])) != {"401"}:
        raise NotCarriedOutError("a request without any key is not refused")
    return Outcome(answers, opened=answers["200"], held=not answers["200"])


def _chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def _endless(scene: Scene, begin: bytes, block: bytes, most: int) -> Outcome:
    """Send a beginning and then blocks, until there were enough of them or the service ends it."""
    target = scene.target
    blocks = scene.count(most) // len(block)
    end = time.monotonic() + scene.seconds
    with dial(target.address) as connection:
        connection.sendall(head("POST", "/v1/recommend", *_CHUNKED) + begin)
        sent = send_until_closed(connection, _until(end, itertools.repeat(block, blocks)))
        connection.settimeout(1)
        answer = read_answer(connection)
    if sent < 2 * len(block) and not answer.status:
        raise NotCarriedOutError(f"{sent} bytes were sent, and no answer came")
    refused = answer.status in (400, 401, 408, 413, 431) or sent < blocks * len(block)
    return Outcome(statuses([answer]), held=refused and sent < 10_000_000, notes={"sent_mb": sent / 1e6})


def _until(end: float, blocks: Iterator[bytes]) -> Iterator[bytes]:
    return itertools.takewhile(lambda _: time.monotonic() < end, blocks)
