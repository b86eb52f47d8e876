import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, own_redis
from turret.service.errors import HistoryUnavailableError
from turret.service.stores.redis.address import read_address
from turret.service.stores.redis.connections import RedisConnections


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    made = tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key.pem")]
    subprocess.run([*command, "-out", str(made)], check=True, capture_output=True)
    return made


def ping(address: str) -> list[object]:
    async def work() -> list[object]:
        connections = RedisConnections(read_address(address), 1, 5.0)
        try:
            return await connections.execute([["PING"], ["NONSENSE"], ["ECHO", "x"]])
        finally:
            await connections.close()

    return asyncio.run(work())


def test_a_server_with_tls_has_to_have_a_known_certificate(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    tls = {"tls-port": str(port), "tls-auth-clients": "no", "tls-cert-file": str(certificate)}
    with own_redis(tmp_path / "tls", **tls, **{"tls-key-file": str(tmp_path / "key.pem")}):
        with pytest.raises(HistoryUnavailableError, match=r"(?i)certificate"):
            ping(f"rediss://localhost:{port}/0")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ping(f"rediss://localhost:{port}/0")[0] == b"PONG"
        with pytest.raises(HistoryUnavailableError):
            ping(f"rediss://127.0.0.1:{port}/0")


def test_an_error_of_one_command_is_its_answer_and_the_others_have_theirs(server: RedisServer) -> None:
    pong, error, echo = ping(server.address)
    assert (pong, echo) == (b"PONG", b"x")
    assert "unknown command" in str(error)


def test_there_are_no_more_connections_than_were_asked_for(server: RedisServer) -> None:
    """And all questions are answered over them."""

    async def work() -> int:
        connections = RedisConnections(read_address(server.address), 3, 5.0)
        answers = await asyncio.gather(*(connections.execute([["ECHO", f"{n}"]]) for n in range(60)))
        assert answers == [[f"{n}".encode()] for n in range(60)]
        clients = int(server.ask("INFO", "clients")["connected_clients"])
        await connections.close()
        return clients

    assert 2 <= asyncio.run(work()) <= 4  # one of them asks how many there are


def test_a_connection_whose_caller_went_away_is_not_used_again(server: RedisServer) -> None:
    """The answer to the old question is still under way on it."""

    async def work() -> None:
        connections = RedisConnections(read_address(server.address), 1, 5.0)
        await connections.execute([["PING"]])
        with server.paused():
            call = asyncio.ensure_future(connections.execute([["ECHO", "old"]]))
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        for number in range(5):
            assert await connections.execute([["ECHO", f"{number}"]]) == [f"{number}".encode()]
        await connections.close()

    asyncio.run(work())
