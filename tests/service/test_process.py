"""A service as a process: its settings, how its workers share ports, and how they end."""

import asyncio
import contextlib
import errno
import resource
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import commands
from tests.support.until import until
from tests.support.virtual_time import Clock
from turret.service.components import BackgroundTasks
from turret.service.errors import ServiceError
from turret.service.process.server import connection_limit, listeners, reserve, share, url_of
from turret.service.process.supervisor import Order, Shutdown, Supervisor
from turret.service.settings import Settings, read_settings

# ---- Addresses, descriptors and the end


@pytest.mark.process
def test_a_free_port_is_found_and_an_address_that_can_not_be_bound_is_named() -> None:
    with reserve("127.0.0.1", 0) as reserved:
        port = reserved.getsockname()[1]
        assert url_of(reserved) == f"http://127.0.0.1:{port}"
        for host in ("127.0.0.1", "256.256.256.256", "no.such.host.invalid"):
            with pytest.raises(ServiceError, match=f"{host}:{port}"):
                reserve(host, port)
    if socket.has_dualstack_ipv6():
        with reserve("::1", 0) as reserved:
            assert url_of(reserved).startswith("http://[::1]:")


@pytest.mark.process
def test_workers_share_an_address_that_no_other_service_takes() -> None:
    """Nor do their clients wait for a worker that has ended."""
    with reserve("127.0.0.1", 0) as reserved, share(reserved) as one, share(reserved) as other:
        host, port = place = reserved.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)
        with pytest.raises(ServiceError):
            reserve(host, port)
        for listening in (one, other):
            listening.listen()
            listening.setblocking(False)
        with pytest.raises(ServiceError, match="--admin-port"):
            reserve(host, port, "--admin-port")
        one.close()
        for _ in range(20):
            with socket.create_connection(place):
                other.accept()[0].close()


@pytest.mark.process
def test_a_client_that_connects_behind_a_crowd_is_not_held_for_a_turn_of_each() -> None:
    """A turn of uvloop accepts one connection of each socket."""
    crowd = 160
    accepted: list[asyncio.BaseTransport] = []

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    async def serve(bound: list[socket.socket]) -> int:
        loop, turns = asyncio.get_running_loop(), 0
        with contextlib.ExitStack() as stack:
            for one in bound:
                one.listen(crowd)
            for _ in range(crowd):
                stack.enter_context(socket.create_connection(bound[0].getsockname()))
            servers = [await loop.create_server(Accepting, sock=one) for one in bound]
            while len(accepted) < crowd:
                await asyncio.sleep(0)
                turns += bool(accepted)
            for server in servers:
                server.close()
            for transport in accepted:
                transport.close()
        return turns

    loops = asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop)
    with reserve("127.0.0.1", 0) as reserved, loops as runner:
        assert runner.run(serve(listeners([reserved]))) < crowd / 2


@pytest.mark.process
@pytest.mark.fault(41)
def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """Its answer fills the buffers of both ends; the kernel gives the connection up."""
    with reserve("127.0.0.1", 0) as reserved, share(reserved, 0.2) as listening:
        listening.listen()
        with socket.create_connection(reserved.getsockname()), listening.accept()[0] as serving:
            serving.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    serving.send(bytes(100_000))
            until(
                lambda: serving.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT,
                "it is cut off",
            )


@pytest.mark.parametrize(
    ("signals", "orders"),
    [
        ([], [Order.SERVE] * 6),
        ([signal.SIGTERM], [*[Order.DRAIN] * 2, *[Order.FINISH] * 2, Order.KILL, Order.KILL]),
        ([signal.SIGTERM, signal.SIGINT], [*[Order.FINISH] * 3, *[Order.KILL] * 3]),
        ([signal.SIGINT], [*[Order.FINISH] * 3, *[Order.KILL] * 3]),
        ([signal.SIGINT, signal.SIGTERM], [Order.KILL] * 6),
        ([signal.SIGTERM] * 4, [Order.KILL] * 6),
    ],
)
def test_a_service_drains_finishes_and_is_killed_each_in_its_time_or_at_the_next_signal(
    signals: list[int], orders: list[Order]
) -> None:
    """It waits 7 seconds for load balancers and 20 for requests."""
    clock = Clock(0.0)
    shutdown = Shutdown(Settings(drain_delay=7, drain_seconds=20), clock)
    for number in signals:
        shutdown.take(number)
    given: list[Order] = []
    for clock.now in (0, 6.9, 7, 31.9, 32, 1_000):
        given.append(shutdown.advance())
    assert given == orders


def test_a_worker_that_hangs_is_killed_also_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start may take three times as long as the gate, a heartbeat 15 seconds."""
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(pid))
    supervisor = Supervisor(Settings(workers=4, gate_seconds=20))
    states = [(False, 59.0), (False, 61.0), (True, 14.0), (True, 16.0)]
    for worker, (is_ready, silence) in zip(supervisor._workers, states, strict=True):
        worker.pid, worker.is_ready, worker.silence = worker.number + 1, is_ready, silence
    supervisor._kill_hung()
    assert killed == [2, 4]
    assert "pid 2: it has not started within 60 seconds (3 times TURRET_GATE_SECONDS)" in caplog.text
    assert "pid 4: it sends no heartbeat" in caplog.text


# ---- What a worker does beside its requests


async def test_a_background_task_that_fails_is_down_until_it_runs_again_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = asyncio.get_running_loop().time
    background = BackgroundTasks()
    attempts: list[float] = []
    ended: list[str] = []

    async def failing() -> None:
        attempts.append(clock())
        if len(attempts) == 1:
            raise OSError("no descriptor left")
        if len(attempts) == 2:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    async def going_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("going on")

    background.start("failing", failing)
    background.start("going on", going_on)
    seen: list[set[str]] = []
    for seconds in (1, 2, 10):
        await asyncio.sleep(seconds)
        seen.append(set(background.down))
    assert seen == [{"failing"}, {"failing"}, set()]
    assert [round(attempt) for attempt in attempts] == [0, 2, 4]
    assert "background task failing failed; starting it again" in caplog.text
    assert not ended
    await background.close()
    assert ended


@pytest.mark.parametrize(
    ("hard", "taken"), [(524_288, 4_096), (resource.RLIM_INFINITY, 4_096), (1024, 1024 - 256), (271, None)]
)
def test_the_descriptor_limit_is_raised_to_the_hard_limit_and_must_suffice(
    hard: int, taken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(100, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    if taken is None:
        with pytest.raises(ServiceError, match=r"may open 271 files.*ulimit -n.*to 4352"):
            connection_limit()
    else:
        assert (connection_limit(), limits[-1][0]) == (taken, hard)


# ---- Settings: options before the environment, and each fault named


def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_PORT", "9001")
    monkeypatch.setenv("TURRET_HOST", "0.0.0.0")
    monkeypatch.setenv("TURRET_ADMIN_KEY", "secret-of-thirty-two-characters!")
    settings = read_settings(bundles="somewhere", port=9002)
    assert (settings.port, settings.host, settings.bundles) == (9002, "0.0.0.0", Path("somewhere"))
    assert "secret-of" not in repr(settings)


@pytest.mark.parametrize(("name", "value"), [("port", 70000), ("history_timeout", 0), ("shoe_size", 43)])
def test_a_setting_that_does_not_fit_is_named(name: str, value: int) -> None:
    with pytest.raises(ServiceError, match=f"setting {name} can't be {value}"):
        read_settings(**{name: value})


@pytest.mark.parametrize(
    ("given", "admin_port"),
    [({"port": 9000}, 9001), ({"port": 0}, 0), ({"admin_port": 5}, 5), ({"admin_port": "same"}, None)],
)
def test_the_admin_port_is_the_one_after_unless_it_is_given(
    given: dict[str, Any], admin_port: int | None
) -> None:
    assert read_settings(**given).admin_port == admin_port


def test_a_complaint_names_only_options_that_there_are() -> None:
    """All that `turret serve` takes has an option; the rest is for the environment alone."""
    options = {parameter.name for parameter in commands()["serve"].params}
    for name in Settings.model_fields:
        with pytest.raises(ServiceError) as caught:
            read_settings(**{name: object()})
        assert f"TURRET_{name.upper()}" in str(caught.value)
        assert ("--" in str(caught.value)) == (name in options), name
