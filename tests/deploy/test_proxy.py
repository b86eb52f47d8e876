"""The proxy of the production profile: a real nginx before two replicas that are stand-ins."""

import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import PROXY_FOLDER, running_proxy
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.tools import BOUND, require
from turret.service.http.admission import BODY_LIMITS
from turret.service.http.guard import HEAD_BYTES
from turret.service.settings import Settings

LIMITS = (PROXY_FOLDER / "limits.conf").read_text("utf-8")


class Replica:
    """A server that answers every request with one status, and keeps the paths and claimed addresses."""

    def __init__(self) -> None:
        self.status = 200
        self.paths: list[str] = []
        self.clients: list[str | None] = []
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                replica.paths.append(self.path)
                replica.clients.append(self.headers["X-Forwarded-For"])
                self.send_response(replica.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


Replicas = tuple[Replica, Replica]


class Client:
    """A client of nginx on a socket of the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, path: str, body: bytes = b"{}", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = HTTPConnection("proxy", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.path))
        with closing(connection):
            connection.request("POST", path, body, headers or {})
            response = connection.getresponse()
            self.headers = response.headers
            return response.status, json.loads(response.read())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Replica, Replica]]:
    require("nginx")
    folder = tmp_path_factory.mktemp("nginx")
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(Replica())) for _ in range(2))
        listen = f"unix:{folder}/socket"
        stack.enter_context(running_proxy(folder, [first.port, second.port, free_port()], listen))
        yield Client(folder / "socket"), first, second


@pytest.fixture
def proxy(running: tuple[Client, Replica, Replica]) -> Client:
    for replica in running[1:]:
        replica.status, replica.paths, replica.clients = 200, [], []
    return running[0]


@pytest.fixture
def replicas(running: tuple[Client, Replica, Replica]) -> Replicas:
    return running[1:]


@pytest.mark.process
def test_a_replica_that_is_gone_or_not_ready_is_passed_over(proxy: Client, replicas: Replicas) -> None:
    """The third one is gone; the others are asked in turn, and a refusal that both repeat is passed on."""
    for _ in range(6):
        assert proxy.ask("/v1/recommend?k=3", headers={"X-Forwarded-For": "203.0.113.9"}) == (200, {})
    # Else each client would choose the address that its limits count for.
    assert {*replicas[0].clients, *replicas[1].clients} == {"unix:"}
    assert replicas[0].paths + replicas[1].paths == ["/v1/recommend?k=3"] * 6
    assert all(one.paths for one in replicas)
    replicas[0].status = 503
    for path in ("/v1/recommend", "/v1/events"):
        assert [proxy.ask(path)[0] for _ in range(3)] == [200] * 3
    assert replicas[1].paths[-6:] == ["/v1/recommend"] * 3 + ["/v1/events"] * 3
    replicas[0].status = replicas[1].status = 422
    assert [proxy.ask("/v1/recommend") for _ in range(3)] == [(422, {})] * 3


@pytest.mark.process
def test_no_call_of_operators_passes(proxy: Client, replicas: Replicas) -> None:
    metrics = (
        "/metrics",
        "/metrics%0A",
        "/metrics/",
        "/metrics%20",
        "/metrics%E2%80%A8",
        "/x/../metrics",
        "//metrics",
    )
    for path in ("/admin/activate", "/admin", "//admin/activate", "/%61dmin/routes", "/admin%0A", *metrics):
        assert proxy.ask(path)[0] == 404
    assert not any(one.paths for one in replicas)


@pytest.mark.nightly
def test_the_proxy_refuses_in_the_words_of_the_service(tmp_path: Path) -> None:
    """A service that is gone, a body that is too large, and too many requests of one address."""
    require("nginx")
    limits = LIMITS.replace("200r/s", "1r/m").replace("burst=400", "burst=1")
    with running_proxy(tmp_path, [free_port()], f"unix:{tmp_path}/socket", limits):
        client = Client(tmp_path / "socket")
        for _ in range(2):  # as many as the limits let through at once
            status, value = client.ask("/v1/recommend")
            assert (status, value["error"]["field"]) == (503, "service")
        status, value = client.ask("/v1/recommend", b" " * 1_000_001)
        assert (status, value["error"]["field"]) == (413, "body")
        status, value = client.ask("/v1/recommend")
        assert (status, value["error"]["field"]) == (429, "client")
        assert client.headers["Retry-After"] == "1"


@pytest.mark.parametrize("files", ["nginx.conf", "production/proxy/*.conf"])
def test_the_proxy_lets_nothing_through_that_the_service_would_refuse_for_its_size(files: str) -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "deploy").glob(files)))

    def value(directive: str) -> int:
        return int(re.findall(rf"^ *{directive} (\d+)", text, re.MULTILINE)[0])

    ((buffers, kilobytes),) = re.findall(r"large_client_header_buffers (\d+) (\d+)k", text)
    assert (int(buffers) * int(kilobytes) + value("client_header_buffer_size")) * 1024 < HEAD_BYTES - 1024
    defaults = Settings()
    sizes = {int(size) for size in re.findall(r"client_max_body_size (\d+)", text)}
    assert sizes == {defaults.body_limit, BODY_LIMITS["bulk"]}
    (lines,) = re.findall(r"location = /v1/items \{\s+client_max_body_size (\d+);", text)
    assert int(lines) == BODY_LIMITS["bulk"]
    assert value("proxy_read_timeout") > defaults.request_seconds


def test_the_proxy_closes_its_connections_before_the_service_does() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    (seconds,) = re.findall(r"upstream turret \{.*?keepalive_timeout (\d+)s.*?\}", text, re.DOTALL)
    assert int(seconds) < Settings().keep_alive_seconds


def start(folder: Path, *before: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the start script with its folders replaced, and a stand-in for nginx that does nothing."""
    program = folder / "bin" / "nginx"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    script = (PROXY_FOLDER / "start.sh").read_text("utf-8").replace("/deploy/proxy", str(PROXY_FOLDER))
    script = script.replace("/run/secrets/tls", f"{folder}/tls").replace("/tmp/nginx", f"{folder}/nginx")
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin", **variables}
    command = [*before, "sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_the_limits_of_an_address_are_settings(tmp_path: Path) -> None:
    written = tmp_path / "nginx" / "limits.conf"
    assert start(tmp_path).returncode == 0
    assert written.read_text("utf-8") == LIMITS
    settings = {"TURRET_ADDRESS_RATE": "5000", "TURRET_ADDRESS_REQUESTS": "900"}
    assert start(tmp_path, **settings, TURRET_LOAD_BALANCER="10.0.0.7 10.1.0.0/16").returncode == 0
    changed = LIMITS.replace("200r", "5000r").replace("=400", "=10000").replace("address 64", "address 900")
    addresses = "set_real_ip_from 10.0.0.7;\nset_real_ip_from 10.1.0.0/16;\nreal_ip_header X-Forwarded-For;\n"
    assert written.read_text("utf-8") == changed + addresses
    for value in ("0", "-1", "many", "1000000", "5;"):
        run = start(tmp_path, TURRET_ADDRESS_RATE=value)
        assert run.returncode == 1
        assert f"can't be '{value}'; give a number from 1 to 999999" in run.stderr


@pytest.mark.nightly
def test_the_proxy_uses_tls_where_there_are_certificates_that_it_can_read(tmp_path: Path) -> None:
    tls, listen = tmp_path / "tls", tmp_path / "nginx" / "listen.conf"
    tls.mkdir()
    assert start(tmp_path).returncode == 0
    assert "ssl" not in listen.read_text("utf-8")
    (tls / "fullchain.pem").touch()
    assert "privkey.pem is missing" in start(tmp_path).stderr
    (tls / "privkey.pem").touch()
    assert start(tmp_path).returncode == 0
    assert "listen 8443 ssl" in listen.read_text("utf-8")
    (tls / "privkey.pem").chmod(0)
    run = start(tmp_path, *(BOUND if os.geteuid() == 0 else ()))
    assert run.returncode == 1
    assert "can't read deploy/secrets/tls/privkey.pem" in run.stderr
