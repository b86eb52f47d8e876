"""Patterns of requests that hold resources of a service: memory, places, and turns of its event loops.

Whether a service refuses them is tested in `tests/faults` and `tests/service`; here they are made for their
cost to others. Each gives the number of its answers by status, or `closed`.
"""

import asyncio
import itertools
import json
import secrets
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

Address = tuple[str, int]
Answers = Counter[str]
PATIENCE = 20.0  # seconds for answers that are under way at the end
PACE = 0.0005  # seconds between two connections: their memory is measured, not their rate
SMALL_BUFFER = 4096  # bytes that are received of an answer that nobody reads
BODY_BYTES = 980_000  # just below the limit of a body
RECOMMEND, BATCH, EVENTS = "/v1/recommend", "/v1/recommend/batch", "/v1/events"
JSON = "Content-Type: application/json"


@dataclass(frozen=True)
class Scene:
    """Where to attack, a key for reading and writing, the history of a user, and the seconds of an attack."""

    address: Address
    key: str
    history: list[str]
    seconds: float
    quick: bool

    def count(self, whole: int) -> int:
        """How many of something: all, or a fifth in a quick run."""
        return max(1, whole // 5) if self.quick else whole

    def recommend(self, k: int = 10) -> bytes:
        """A request for recommendations with the right key."""
        return post(RECOMMEND, {"history": self.history, "k": k}, self.key)

    def largest_batch(self) -> bytes:
        """The batch with the largest answer that the limits allow: 10,000 items."""
        return post(BATCH, {"requests": [{"history": self.history, "k": 100}] * 100}, self.key)


@dataclass(frozen=True)
class Attack:
    """An attack with the seconds that it may take.

    Attributes:
        group: of each group, a quick run makes the first attack.
        is_shut: an answer of 200 would be a door that is open.
        edge: it comes through nginx with the limits of the production profile.
    """

    name: str
    group: str
    act: Callable[[Scene], Answers]
    seconds: float = 5.0
    is_shut: bool = False
    edge: bool = False


def head(method: str, path: str, *lines: str, key: str | None = None) -> bytes:
    """Write the head of a request."""
    bearer = [f"Authorization: Bearer {key}"] if key else []
    first = [f"{method} {path} HTTP/1.1", "Host: abuse", *bearer]
    return "\r\n".join([*first, *lines, "", ""]).encode("latin-1")


def post(path: str, body: object, key: str | None = None) -> bytes:
    """Write a whole POST; `body` is bytes, or a value that is written as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", path, JSON, f"Content-Length: {len(content)}", key=key) + content


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Read one answer and give its status. Raises OSError, EOFError or ValueError without one."""
    first = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, separator, length = first.partition(b"content-length:")
    await reader.readexactly(int(length.split(b"\r\n")[0]) if separator else 0)
    return int(first[9:12])


def crowd(scene: Scene, clients: int, requests: Iterable[bytes], at_once: int = 1) -> Answers:
    """Connections that each send so many requests at once, again as soon as those are answered.

    They end after the seconds of the scene, or with the requests.
    """
    answers: Answers = Counter()
    taken = iter(requests)
    end = time.monotonic() + scene.seconds

    async def ask() -> None:
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection(*scene.address)
            except OSError:
                answers["closed"] += 1
                continue
            try:
                while time.monotonic() < end:
                    sent = list(itertools.islice(taken, at_once))
                    if not sent:
                        return
                    writer.write(b"".join(sent))
                    for _ in sent:
                        answers[str(await read_answer(reader))] += 1
            except (OSError, EOFError, ValueError):
                answers["closed"] += 1
            finally:
                writer.close()

    async def ask_all() -> None:
        tasks = [asyncio.create_task(ask()) for _ in range(clients)]
        await asyncio.wait(tasks, timeout=scene.seconds + PATIENCE)
        for task in tasks:
            task.cancel()

    asyncio.run(ask_all())
    return answers


def held(
    scene: Scene, count: int, request: bytes, more: bytes = b"", read: int = 0, wait: float = PACE
) -> Answers:
    """Connections that send a request and stay until the end, and how their answers begin.

    The next is opened when an answer has begun, or after `wait` seconds. Until the end, `more` is sent on all
    now and then, and `read` bytes are taken of each answer.
    """
    end = time.monotonic() + scene.seconds
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        while len(connections) < scene.count(count) and time.monotonic() < end:
            with suppress(OSError):
                connections.append(stack.enter_context(_dialled(scene.address)))
                connections[-1].sendall(request)
                answer = select.poll()
                answer.register(connections[-1], select.POLLIN)
                answer.poll(1000 * wait)
        for one in connections:
            one.setblocking(False)
        while time.monotonic() < end:
            for one in connections:
                with suppress(OSError):
                    one.send(more)
                    if read and len(one.recv(read + 100, socket.MSG_PEEK)) > read:
                        one.recv(read)
            time.sleep(0.1)
        return Counter(map(_beginning, connections))


def unread(scene: Scene, count: int, request: bytes, read: int = 0) -> Answers:
    """Connections that read nothing, or a few bytes now and then, of large answers."""
    return held(scene, count, request, read=read, wait=0.5)


def _dialled(address: Address) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    connection.settimeout(1.0)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _beginning(connection: socket.socket) -> str:
    """The status of an answer that has begun, `waiting` where none has, `closed`."""
    try:
        first = connection.recv(12, socket.MSG_PEEK)
    except BlockingIOError:
        return "waiting"
    except OSError:
        return "closed"
    # Of an answer that is read in parts, the beginning is gone.
    return (first[9:12].decode("latin-1") if first.startswith(b"HTTP/1.1 ") else "200") if first else "closed"


def half_sent(scene: Scene, key: str | None) -> Answers:
    """4,000 connections, each with 64,000 of 65,000 bytes of a body."""
    request = head("POST", RECOMMEND, JSON, "Content-Length: 65000", key=key) + b" " * 64_000
    return held(scene, 4000, request)


def endless_trailers(scene: Scene) -> Answers:
    """Up to 154 MB of trailer lines, each of which would be an object, on a connection without a key."""
    request = head("POST", RECOMMEND, JSON, "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n"
    lines = b"".join(b"x%06d: short\r\n" % number for number in range(62_500))
    return crowd(scene, 1, [request + lines * scene.count(154)])


def one_byte_chunks(scene: Scene) -> Answers:
    """Bodies just below the limit in chunks of one byte, on four connections at once."""
    begin = head("POST", RECOMMEND, JSON, "Transfer-Encoding: chunked", key=scene.key)
    return crowd(scene, 4, itertools.repeat(begin + b"1\r\n \r\n" * 990_000 + b"0\r\n\r\n"))


def _list(field: str, value: str) -> bytes:
    """A list of as many values as there is room for."""
    return f'{{"{field}":[{",".join([value] * (BODY_BYTES // (len(value) + 1)))}]}}'.encode()


def _keys(value: str) -> str:
    return ",".join(f'"k{number:07d}":{value}' for number in range(BODY_BYTES // (len(value) + 12)))


_WRONG_LIST = f"[{','.join(['[]'] * 1000)}]"
_WRONG_REQUEST = f'{{"history":{_WRONG_LIST},"exclude":{_WRONG_LIST},"history_times":{_WRONG_LIST}}}'
# Bodies below the limit that cost more than they should, made when they are needed.
BODIES: tuple[tuple[str, Callable[[], bytes]], ...] = (
    (RECOMMEND, lambda: _list("history", "null")),
    (RECOMMEND, lambda: _list("history", "[]")),
    (RECOMMEND, lambda: _list("history_times", '"x"')),
    (RECOMMEND, lambda: _list("history", "true")),
    (RECOMMEND, lambda: _list("exclude", "{}")),
    (BATCH, lambda: _list("requests", "1")),
    (BATCH, lambda: _list("requests", "{}")),
    (BATCH, lambda: _list("requests", '{"x":1}')),
    (BATCH, lambda: f'{{"requests":[{",".join([_WRONG_REQUEST] * 100)}]}}'.encode()),
    (EVENTS, lambda: _list("events", "1")),
    (EVENTS, lambda: _list("events", "{}")),
    (EVENTS, lambda: _list("events", '{"event_id":[],"user_id":{},"item_id":null}')),
    (RECOMMEND, lambda: f"{{{_keys('1')}}}".encode()),
    (RECOMMEND, lambda: f'{{"features":{{{_keys("1")}}}}}'.encode()),
    (RECOMMEND, lambda: f'{{"cap":{{{_keys("-1")}}}}}'.encode()),
    (RECOMMEND, lambda: b'{"filter":{"title":{"any_of":[%b]}}}' % b",".join([b'"x"'] * (BODY_BYTES // 4))),
    (RECOMMEND, lambda: f'{{"filter":{{{_keys("{}")}}}}}'.encode()),
    (RECOMMEND, lambda: b"[" * (BODY_BYTES // 2) + b"]" * (BODY_BYTES // 2)),
    (RECOMMEND, lambda: b'{"user_id":"%b"}' % (b":" * BODY_BYTES)),
    (RECOMMEND, lambda: b'{"k":%b}' % (b"9" * BODY_BYTES)),
    (RECOMMEND, lambda: _list("history", "0." + "1" * 300)),
    (RECOMMEND, lambda: b'{"a":' * (BODY_BYTES // 6) + b"1" + b"}" * (BODY_BYTES // 6)),
    (RECOMMEND, lambda: _list("x", "[" * 30 + "]" * 30)),
    (RECOMMEND, lambda: _list("history", "9" * 400)),
    (RECOMMEND, lambda: b'{"user_id":"%b"}' % (b"\\u00e9" * (BODY_BYTES // 6))),
)


def wrong_bodies(scene: Scene, key: str | None) -> Answers:
    """Each body twice, by one client."""
    made = (post(path, make(), key) for path, make in BODIES for _ in range(2))
    return crowd(scene, 1, made)


def large_right_bodies(scene: Scene) -> Answers:
    """Bodies just below the limit that are as they should be: long ids in a batch, and events."""
    ids = [f"{number:0490d}" for number in range(19)]
    batch = post(BATCH, {"requests": [{"history": ids, "k": 1}] * 100}, scene.key)
    events = [
        {"event_id": f"{number}-{'e' * 400}", "user_id": f"{number}-{'u' * 300}", "item_id": 7}
        for number in range(1000)
    ]
    stored = post(EVENTS, {"events": events}, scene.key)

    def paced() -> Iterator[bytes]:
        for request in itertools.cycle((batch, stored)):
            yield request
            time.sleep(0.1)

    return crowd(scene, 1, paced())


def reconnecting(scene: Scene) -> Answers:
    """Connections that are opened and closed at once, as fast as one client can."""
    answers: Answers = Counter()
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        with suppress(OSError), _dialled(scene.address):
            answers["connections"] += 1
    return answers


def wrong_keys(scene: Scene) -> Answers:
    """Wrong keys as fast as they are answered, on four connections."""
    guesses = (post(RECOMMEND, {}, f"turret_reader_{secrets.token_urlsafe(32)}") for _ in itertools.count())
    return crowd(scene, 4, guesses)


def open_paths(scene: Scene) -> Answers:
    """320 connections ask for all that is open, as fast as they are answered."""
    paths = ("/docs", "/openapi.json", "/metrics", "/livez", "/readyz")
    return crowd(scene, 320, itertools.cycle([head("GET", path) for path in paths]))


ATTACKS = (
    Attack("endless_trailers", "framing", endless_trailers, 8, is_shut=True),
    Attack("one_byte_chunks", "framing", one_byte_chunks, is_shut=True),
    Attack("unread_batches", "answers", lambda at: unread(at, 614, at.largest_batch()), 10, edge=True),
    Attack(
        "unread_recommendations", "answers", lambda at: unread(at, 600, at.recommend(1000) * 15), 6, edge=True
    ),
    Attack("slow_readers", "answers", lambda at: unread(at, 200, at.largest_batch(), read=100)),
    Attack("wrong_bodies", "bodies", lambda at: wrong_bodies(at, at.key), is_shut=True),
    Attack("wrong_bodies_without_key", "bodies", lambda at: wrong_bodies(at, None), is_shut=True),
    Attack("large_right_bodies", "bodies", large_right_bodies, 3),
    Attack("half_sent_bodies_with_key", "connections", lambda at: half_sent(at, at.key), 8),
    Attack("half_sent_bodies", "connections", lambda at: half_sent(at, None), 8, is_shut=True),
    Attack("slow_heads", "connections", lambda at: held(at, 1000, head("GET", "/livez")[:-2] + b"X: ", b"y")),
    Attack("kept_connections", "connections", lambda at: held(at, 4000, head("GET", "/livez")), 8),
    Attack("reconnecting", "connections", reconnecting, 3),
    Attack("wrong_keys", "keys", wrong_keys, 3, is_shut=True),
    Attack("open_paths", "floods", open_paths, edge=True),
    Attack("overload", "floods", lambda at: crowd(at, 400, itertools.repeat(at.recommend())), 3, edge=True),
    Attack(
        "pipelining", "floods", lambda at: crowd(at, 100, itertools.repeat(at.recommend()), 16), 3, edge=True
    ),
)
