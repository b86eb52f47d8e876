import asyncio
import socket
import time

import pytest

from tests.service.small_server import GET, leave, read, refused, run, running
from turret.service.errors import ServiceError
from turret.service.process.serving import LINGER_SECONDS, listen, url_of


def test_a_free_port_is_found_and_named() -> None:
    with listen("127.0.0.1", 0) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_version_six_is_written_in_brackets() -> None:
    with listen("::1", 0) as listening:
        assert url_of(listening).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["127.0.0.1", "256.256.256.256", "no.such.host.invalid"])
def test_an_address_that_cannot_be_bound_is_named(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"{host}:{port}"):
            listen(host, port)


@pytest.mark.nightly
def test_requests_beyond_the_drain_time_get_an_error_response() -> None:
    async def scenario() -> None:
        async with running(drain=1) as server:
            server.app.open.clear()
            reader, writer = await server.connect()
            writer.write(GET)
            while not server.app.began:
                await asyncio.sleep(0.01)
            server.server.should_exit = True
            begun = time.monotonic()
            answer = await read(reader)
            assert 0.9 < time.monotonic() - begun < 2
            refused(answer, 503, "service")
            assert answer is not None
            assert answer[1]["connection"] == "close"
            await leave(writer)

    run(scenario)


@pytest.mark.nightly
def test_an_idle_connection_may_ask_a_moment_longer_and_is_closed_then() -> None:
    async def scenario() -> None:
        async with running() as server:
            both = [await server.connect() for _ in range(2)]
            for reader, writer in both:
                writer.write(GET)
                await read(reader)
            server.server.should_exit = True
            begun = time.monotonic()
            await asyncio.sleep(LINGER_SECONDS / 2)
            (reader, writer), (idle, _) = both
            writer.write(GET)
            answer = await read(reader)
            assert answer is not None
            assert answer[0] == 200
            assert await idle.read() == b""
            assert LINGER_SECONDS <= time.monotonic() - begun < LINGER_SECONDS + 0.5
            for _, writer in both:
                await leave(writer)

    run(scenario)


@pytest.mark.nightly
def test_a_server_without_connections_stops_at_once() -> None:
    async def scenario() -> None:
        async with running():
            await asyncio.sleep(0.05)
            begun = time.monotonic()
        assert time.monotonic() - begun < LINGER_SECONDS

    run(scenario)


def test_a_probe_on_a_new_connection_takes_few_iterations_of_the_loop() -> None:
    """Under attack each takes tens of milliseconds; one accepts, one starts to read, one answers."""
    turns = 0

    def ask(port: int) -> int:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            first = turns
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            return turns - first

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            time.sleep(0.005)  # so that the client's bytes arrive within the iteration
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with running() as server:
            turning = asyncio.create_task(turn())
            counts = [await asyncio.to_thread(ask, server.port) for _ in range(10)]
            turning.cancel()
        assert sorted(counts)[5] <= 4, counts

    run(scenario)
