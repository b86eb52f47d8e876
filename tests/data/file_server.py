"""An HTTP server in this process, with the bad behavior of those on the network: it needs no port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from unittest.mock import patch


class FileServer:
    """Serves `files` by path, and records requests."""

    url = "http://127.0.0.1:9"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []  # the next answers end after so many bytes
        self.requests: list[dict[str, str]] = []

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
        if content is None:
            self.send_error(404)
        else:
            self._send(server, content)

    def _send(self, server: FileServer, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        # Before the client sees the answer, and perhaps makes its next request.
        body = content[: server.cuts.pop(0)] if server.cuts else content
        self.end_headers()
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
