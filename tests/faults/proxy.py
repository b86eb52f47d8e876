"""A proxy as stands in front of services: it sends requests to those that are ready by their /readyz."""

import http.client
import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LOOK_SECONDS = 0.1


class Proxy(ThreadingHTTPServer):
    """Listens on a free port; keeps a connection to each service for each of its clients."""

    daemon_threads = True

    def __init__(self, services: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.addresses = [urlsplit(service).netloc for service in services]
        self.ready = list(self.addresses)
        self.turn = itertools.count()
        self._over = threading.Event()
        self._running = [threading.Thread(target=self._look), threading.Thread(target=self.serve_forever)]
        for thread in self._running:
            thread.start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.ready = [address for address in self.addresses if _is_ready(address)]

    def stop(self) -> None:
        self._over.set()
        self.shutdown()
        for thread in self._running:
            thread.join()
        self.server_close()


def _is_ready(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def setup(self) -> None:
        super().setup()
        self._kept: dict[str, http.client.HTTPConnection] = {}

    def finish(self) -> None:
        super().finish()
        for connection in self._kept.values():
            connection.close()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        ready = self.server.ready or self.server.addresses
        # From one to the other, so that all of them have requests under way.
        address = ready[next(self.server.turn) % len(ready)]
        connection = self._kept.setdefault(address, http.client.HTTPConnection(address, timeout=60))
        status, answer = 502, b"{}"
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass
