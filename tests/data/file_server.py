"""An HTTP server in this process, with the bad behavior of those on the network: it needs no port."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from unittest.mock import patch


class FileServer:
    """Serves `files` by path, and records requests and the number of bytes sent."""

    url = "http://127.0.0.1:9"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.etag: str | None = '"1"'
        self.announces_length = True
        self.rewind = 0  # bytes by which a partial answer begins before the range that was requested
        self.cuts: list[int] = []  # the next answers end after so many bytes
        self.statuses: list[int] = []  # the next answers are these, without a file
        self.requests: list[dict[str, str]] = []
        self.sent: list[int] = []

    def connect(self, client: HTTPConnection) -> None:
        """Give the client its end of a connection, whose other end a thread answers."""
        client.sock, theirs = socket.socketpair()
        threading.Thread(target=self._answer, args=(theirs,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # a client may go away early
            _Handler(connection, ("client", 0), self)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        server: FileServer = self.server  # type: ignore[assignment]
        server.requests.append(dict(self.headers.items()))
        content = server.files.get(self.path.lstrip("/"))
        if server.statuses:
            self.send_error(server.statuses.pop(0))
        elif content is None:
            self.send_error(404)
        else:
            self._send(server, content)

    def _send(self, server: FileServer, content: bytes) -> None:
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        fits = self.headers.get("If-Range") in (None, server.etag)
        start = int(span[1]) if span and fits and server.ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        start = max(0, start - server.rewind)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        if server.announces_length:
            self.send_header("Content-Length", str(len(content) - start))
        body = content[start:]
        # Before the client sees the answer, and perhaps makes its next request.
        body = body[: server.cuts.pop(0)] if server.cuts else body
        self.end_headers()
        server.sent.append(len(body))
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[FileServer]:
    """Let all connections of the block lead to a server."""
    server = FileServer()
    with (
        patch.object(HTTPConnection, "connect", lambda client: server.connect(client)),
        patch.dict("os.environ", {"no_proxy": "127.0.0.1"}),
    ):
        yield server
