"""A real HTTP server on this machine, with the bad behavior of those on the network."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch


class FileServer:
    """Serves `files` by path, and records requests and the number of bytes sent."""

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
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it so)
                """Keep the test's output clean."""

            def do_GET(self) -> None:
                server.requests.append(dict(self.headers.items()))
                content = server.files.get(self.path.lstrip("/"))
                if server.statuses:
                    self.send_error(server.statuses.pop(0))
                elif content is None:
                    self.send_error(404)
                else:
                    self._answer(content)

            def _answer(self, content: bytes) -> None:
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

        return Handler


@contextmanager
def serving() -> Iterator[FileServer]:
    """Run a server while the block runs."""
    server = FileServer()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    with patch.dict(os.environ, {"no_proxy": "127.0.0.1"}):
        yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()
