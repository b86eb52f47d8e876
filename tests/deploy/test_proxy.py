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
from tests.support.rights import BOUND, needs_root

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


class Replica:
    """A server that answers every request with one status, and counts them."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.paths: list[str] = []
        self.forwarded: list[str | None] = []
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                replica.paths.append(self.path)
                replica.forwarded.append(self.headers["X-Forwarded-For"])
                self.send_response(replica.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

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


@needs_nginx
def test_an_address_that_a_client_claims_is_replaced(
    tmp_path: Path, replicas: tuple[Replica, Replica]
) -> None:
    """Else each client would choose the address that its limits count for."""
    with local_proxy(tmp_path, [one.port for one in replicas]) as proxy:
        ask(proxy.port, "/v1/recommend", headers={"X-Forwarded-For": "203.0.113.9"})
    assert replicas[0].forwarded + replicas[1].forwarded == ["127.0.0.1"]


@needs_nginx
def test_too_many_requests_of_one_address_are_refused_in_words(tmp_path: Path) -> None:
    with local_proxy(tmp_path, [free_port()]) as proxy:
        connection = HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        for _ in range(4000):
            connection.request("GET", "/v1/version")
            response = connection.getresponse()
            text = response.read()
            if response.status != 503:
                break
        connection.close()
    assert response.status == 429
    assert response.headers["Retry-After"] == "1"
    assert json.loads(text)["error"]["field"] == "client"


def start(
    folder: Path, *before: str, nginx: str = "echo started", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the start script with its folders replaced, and a stand-in for nginx."""
    program = folder / "bin" / "nginx"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{nginx}\n")
    program.chmod(0o755)
    script = (FOLDER / "start.sh").read_text("utf-8")
    script = script.replace("/run/secrets/tls", str(folder / "tls")).replace(
        "/tmp/nginx", str(folder / "nginx")
    )
    script = script.replace("/deploy/proxy", str(folder / "conf" if (folder / "conf").is_dir() else FOLDER))
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin", **variables}
    command = [*before, "sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def limits(folder: Path) -> str:
    """The limits of an address that nginx starts with, without comments."""
    lines = (folder / "nginx" / "limits.conf").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_the_limits_of_an_address_are_settings(tmp_path: Path) -> None:
    assert start(tmp_path).returncode == 0
    shipped = limits(tmp_path)
    assert "rate=200r/s;" in shipped
    assert "real_ip" not in shipped
    settings = {"TURRET_ADDRESS_RATE": "5000", "TURRET_ADDRESS_REQUESTS": "900"}
    assert start(tmp_path, **settings, TURRET_LOAD_BALANCER="10.0.0.7 10.1.0.0/16").returncode == 0
    assert limits(tmp_path) == (
        shipped.replace("rate=200r", "rate=5000r")
        .replace("burst=400", "burst=10000")
        .replace("address 64", "address 900")
        + "\nset_real_ip_from 10.0.0.7;\nset_real_ip_from 10.1.0.0/16;\nreal_ip_header X-Forwarded-For;"
    )


@pytest.mark.parametrize("value", ["0", "-1", "many", "1000000", "5;"])
@pytest.mark.parametrize("name", ["TURRET_ADDRESS_RATE", "TURRET_ADDRESS_REQUESTS"])
def test_a_limit_that_is_no_number_is_a_sentence(tmp_path: Path, name: str, value: str) -> None:
    run = start(tmp_path, **{name: value})
    assert run.returncode == 1
    assert run.stderr == (
        f"turret: TURRET_ADDRESS_RATE and TURRET_ADDRESS_REQUESTS can't be '{value}'; give a number from 1 "
        "to 999999\n"
    )


@needs_nginx
@pytest.mark.parametrize(("address", "status"), [("10.0.0.7 10.1.0.0/16", 0), ("balancer.example", 1)])
def test_nginx_checks_the_limits_and_the_addresses(tmp_path: Path, address: str, status: int) -> None:
    """The shipped configuration with the real nginx, which does not start."""
    conf = tmp_path / "conf"
    conf.mkdir()
    for path in FOLDER.glob("*.conf"):
        text = path.read_text("utf-8").replace("/deploy/proxy", str(conf))
        (conf / path.name).write_text(text.replace("/tmp/nginx", str(tmp_path / "nginx")))
    real = f"{shutil.which('nginx')} -q -t -e stderr -c {conf}/nginx.conf"
    run = start(tmp_path, nginx=f'[ "$1" != -q ] || exec {real}', TURRET_LOAD_BALANCER=address)
    assert run.returncode == status, run.stderr
    assert ("turret: nginx refuses its configuration" in run.stderr) == bool(status)


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


@needs_root
def test_a_certificate_that_can_not_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / "tls" / name).write_text("")
    (tmp_path / "tls" / "privkey.pem").chmod(0)
    run = start(tmp_path, *BOUND)
    assert run.returncode == 1
    assert run.stderr == (
        "turret: the proxy can't read deploy/secrets/tls/privkey.pem as user 0: chmod 444 it, in a folder "
        "that only you can enter\n"
    )


def test_a_configuration_that_nginx_refuses_is_a_sentence(tmp_path: Path) -> None:
    run = start(tmp_path, nginx="echo 'no start line' >&2; exit 1")
    assert run.returncode == 1
    assert run.stderr == (
        "no start line\nturret: nginx refuses its configuration or the certificate, see above; "
        "deploy/secrets/tls needs a PEM chain and its key, and TURRET_LOAD_BALANCER addresses such as "
        "10.0.0.0/8\n"
    )
