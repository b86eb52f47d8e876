"""A server before an application that does as little as a test needs, in an event loop with its own clock.

Its clients are at the other ends of socket pairs: nothing listens, and nothing waits for time.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import orjson
import uvicorn

from tests.support.until import eventually
from turret.service.http.admission import BODY_BYTES, Admission
from turret.service.http.edge import Edge
from turret.service.http.guard import guarded
from turret.service.observing.metrics import Metrics
from turret.service.settings import Settings

GET = b"GET /v1/recommend HTTP/1.1\r\nHost: x\r\n\r\n"
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


class Answer(NamedTuple):
    """Its body is JSON, or nothing but letters."""

    status: int
    headers: dict[str, str]
    body: bytes


class Application:
    """Reads the body, waits for `open`, and answers 200, or 401 to `/closed`, whose body it doesn't read.

    `/closed` stands for the check of keys: it is answered in front of the admission.
    """

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.began = 0
        self.size = 2  # of an answer
        self.requests: list[tuple[bytes, bytes]] = []  # the key of each, and its body

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.began += 1
        is_closed = scope["path"] == "/closed"
        body = scope["turret"].body
        self.requests.append((dict(scope["headers"]).get(b"authorization", b""), body))
        await self.open.wait()
        headers = [(b"content-length", b"%d" % self.size)]
        if not is_closed and scope["turret"].call.lane != "probe":
            headers.append((b"x-body", b"%d" % len(body)))
        status = 401 if is_closed else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"k" * self.size})


class Client:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    def send(self, content: bytes) -> None:
        self._writer.write(content)

    async def answer(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """All that comes until the end of the connection."""
        received = b""
        with suppress(ConnectionError):
            while part := await self.reader.read(65_536):
                received += part
        return received

    def end(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    async def leave(self) -> None:
        self.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Running:
    """The server, to be sent bytes; `refused` counts by the reasons of `turret_refused_total`."""

    def __init__(
        self, app: Application, admission: Admission, server: uvicorn.Server, refused: Counter[str]
    ) -> None:
        self.app, self.admission, self.server, self.refused = app, admission, server, refused
        self.clients: list[Client] = []

    @property
    def places(self) -> int:
        return self.admission.lanes["recommend"].running

    async def connect(self, content: bytes = b"") -> Client:
        ours, theirs = socket.socketpair()
        config = self.server.config
        protocol: Any = config.http_protocol_class
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol(config=config, server_state=self.server.server_state, app_state={}), theirs
        )
        client = Client(*await asyncio.open_connection(sock=ours))
        self.clients.append(client)
        client.send(content)
        return client

    async def ask(self, content: bytes) -> Answer:
        """Send one request, or nothing, on a connection of its own."""
        client = await self.connect(content)
        answer = await client.answer()
        await client.leave()
        return answer


@asynccontextmanager
async def running(
    limit: int = 4,
    most: int = 100,
    body_limit: int = 1_000_000,
    held: int = BODY_BYTES,
    drain: int | None = None,
) -> AsyncIterator[Running]:
    """Serve within a running loop; at the end the clients leave and all requests are answered."""
    settings = Settings(queue_limit=limit, body_limit=body_limit)
    refused, app = Counter[str](), Application()

    def count(reason: str) -> None:
        refused[reason] += 1

    admission = Admission(app, settings, count, held)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"] == "/closed" else admission)(scope, receive, send)

    config = uvicorn.Config(
        Edge(outer, Metrics()),
        http=guarded(most, count),
        ws="none",
        lifespan="off",
        log_level="error",
        timeout_graceful_shutdown=drain,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[]))
    await eventually(lambda: server.started, "the server has started")
    running = Running(app, admission, server, refused)
    try:
        async with asyncio.timeout(1_000):
            yield running
    finally:
        app.open.set()
        for client in running.clients:
            await client.leave()
        server.should_exit = True
        await serving
    assert not server.server_state.connections
    assert admission.held_bytes == admission.paused == running.places == 0


def served(answer: Answer) -> None:
    assert answer.status == 200


def refused(answer: Answer, status: int, field: str) -> None:
    assert (answer.status, orjson.loads(answer.body)["error"]["field"]) == (status, field)
