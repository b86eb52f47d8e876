"""The picture of the dashboard has every panel, and a panel without data is an error."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks import dashboard


class Prometheus(ThreadingHTTPServer):
    """Answers every query with the same series."""

    series: list[object]
    queries: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Prometheus

    def do_GET(self) -> None:
        self.server.queries += parse_qs(urlsplit(self.path).query)["query"]
        body = json.dumps({"status": "success", "data": {"result": self.server.series}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Prometheus]:
    monkeypatch.setattr(dashboard, "PICTURE", tmp_path / "dashboard.svg")
    server = Prometheus(("127.0.0.1", 0), Handler)
    server.series = [{"metric": {"status": "teapot"}, "values": [[100, "1.5"], [101, "NaN"]]}]
    server.queries = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_every_panel_is_drawn_by_its_queries(prometheus: Prometheus, tmp_path: Path) -> None:
    dashboard.draw(int(prometheus.server_address[1]), 100, 101)
    picture = (tmp_path / "dashboard.svg").read_text("utf-8")
    panels = json.loads(dashboard.DASHBOARD.read_text("utf-8"))["panels"]
    assert all(panel["title"] in picture for panel in panels)
    assert "teapot" in picture
    assert len(prometheus.queries) == sum(len(panel["targets"]) for panel in panels)
    assert not [query for query in prometheus.queries if "$" in query]


def test_a_panel_without_data_is_an_error(prometheus: Prometheus) -> None:
    prometheus.series = []
    with pytest.raises(RuntimeError, match="the panel Requests per second has no data"):
        dashboard.draw(int(prometheus.server_address[1]), 100, 101)
