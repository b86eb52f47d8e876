"""The proxy of the production profile: a real nginx before two replicas that are stand-ins."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.http_candidates import free_port
from benchmarks.local_proxy import FOLDER, local_proxy

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


class Replica:
    """A server that answers every request with one status, and counts them."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.paths: list[str] = []
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                replica.paths.append(self.path)
                self.send_response(replica.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def ask(port: int, path: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, body, headers or {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)


@pytest.fixture
def replicas() -> Iterator[tuple[Replica, Replica]]:
    both = Replica(), Replica()
    yield both
    for one in both:
        one.close()


@needs_nginx
@pytest.mark.parametrize("path", ["/v1/recommend", "/v1/events"])
def test_a_replica_that_is_not_ready_is_passed_over(
    tmp_path: Path, replicas: tuple[Replica, Replica], path: str
) -> None:
    replicas[0].status = 503
    with local_proxy(tmp_path, [one.port for one in replicas]) as proxy:
        assert [ask(proxy.port, path)[0] for _ in range(4)] == [200] * 4
    assert replicas[0].paths
    assert replicas[1].paths == [path] * 4


@needs_nginx
def test_a_replica_that_is_gone_is_passed_over(tmp_path: Path, replicas: tuple[Replica, Replica]) -> None:
    gone = free_port()
    with local_proxy(tmp_path, [gone, replicas[0].port]) as proxy:
        assert [ask(proxy.port, "/v1/recommend")[0] for _ in range(4)] == [200] * 4


@needs_nginx
def test_both_replicas_are_asked_in_turn(tmp_path: Path, replicas: tuple[Replica, Replica]) -> None:
    with local_proxy(tmp_path, [one.port for one in replicas]) as proxy:
        for _ in range(6):
            ask(proxy.port, "/v1/recommend?k=3")
    assert [one.paths for one in replicas] == [["/v1/recommend?k=3"] * 3] * 2


@needs_nginx
def test_a_refusal_that_another_replica_repeats_reaches_the_client(
    tmp_path: Path, replicas: tuple[Replica, Replica]
) -> None:
    for one in replicas:
        one.status = 503
    with local_proxy(tmp_path, [one.port for one in replicas]) as proxy:
        assert ask(proxy.port, "/v1/recommend") == (503, {})
        replicas[0].status = replicas[1].status = 422
        assert ask(proxy.port, "/v1/recommend") == (422, {})


@needs_nginx
def test_the_proxy_refuses_in_the_words_of_the_service(
    tmp_path: Path, replicas: tuple[Replica, Replica]
) -> None:
    with local_proxy(tmp_path, [free_port()]) as proxy:
        status, value = ask(proxy.port, "/v1/recommend")
        assert (status, value["error"]["field"]) == (503, "service")
        status, value = ask(proxy.port, "/v1/recommend", b" " * 1_000_001)
        assert (status, value["error"]["field"]) == (413, "body")


@needs_nginx
@pytest.mark.parametrize(
    "path", ["/admin/activate", "/admin", "/metrics", "//admin/activate", "/%61dmin/routes"]
)
def test_no_call_of_operators_passes(tmp_path: Path, replicas: tuple[Replica, Replica], path: str) -> None:
    with local_proxy(tmp_path, [one.port for one in replicas]) as proxy:
        assert ask(proxy.port, path)[0] == 404
    assert not any(one.paths for one in replicas)


def start(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the start script with its folders replaced, and an nginx that only says so."""
    nginx = folder / "bin" / "nginx"
    nginx.parent.mkdir(exist_ok=True)
    nginx.write_text("#!/bin/sh\necho started\n")
    nginx.chmod(0o755)
    script = (FOLDER / "start.sh").read_text("utf-8")
    script = script.replace("/run/secrets/tls", str(folder / "tls")).replace(
        "/tmp/nginx", str(folder / "nginx")
    )
    script = script.replace("/deploy/proxy", str(FOLDER))
    environment = {"PATH": f"{nginx.parent}:/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_the_proxy_uses_tls_where_there_are_certificates(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    assert start(tmp_path).returncode == 0
    assert "ssl" not in (tmp_path / "nginx" / "listen.conf").read_text("utf-8")
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / "tls" / name).write_text("")
    assert start(tmp_path).returncode == 0
    assert "listen 8443 ssl" in (tmp_path / "nginx" / "listen.conf").read_text("utf-8")


def test_a_certificate_without_its_key_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "fullchain.pem").write_text("")
    run = start(tmp_path)
    assert run.returncode == 1
    assert run.stderr == (
        "turret: TLS needs deploy/secrets/tls/fullchain.pem and privkey.pem, and privkey.pem is missing\n"
    )
