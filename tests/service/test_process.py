"""The processes of a service: how they listen, share connections and end."""

import asyncio
import errno
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.virtual_time import in_virtual_time
from turret.service.background_tasks import BackgroundTasks
from turret.service.errors import ServiceError
from turret.service.process.connection_balancer import ConnectionBalancer
from turret.service.process.forking import fork
from turret.service.process.open_files import connection_limit, raise_open_files
from turret.service.process.serving import LINGER_SECONDS, listen, url_of
from turret.service.process.shutdown import SPARE_SECONDS, Shutdown, drop_handshakes
from turret.service.settings import Settings
from turret.service.shared_state import Order
from turret.service.versions.catch_up import CatchUp


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


# Children


@pytest.mark.process
@pytest.mark.parametrize("raised", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_a_child_ends_with_its_work_and_an_exception_ends_only_it(
    raised: type[BaseException] | None, tmp_path: Path
) -> None:
    def work() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where the traceback goes
        (tmp_path / "made").touch()
        if raised is not None:
            raise raised("there")

    _, status = os.waitpid(fork(work), 0)
    assert os.waitstatus_to_exitcode(status) == (raised is not None)
    assert (tmp_path / "made").exists()


# The balance of connections between workers: in a loop with its own clock, on a socket of the file system.


class Listening(socket.socket):
    """Counts its accepts; `failure` is what the next one raises."""

    def __init__(self, path: Path) -> None:
        super().__init__(socket.AF_UNIX)
        self.accepts = 0
        self.failure: OSError | None = None
        self.bind(str(path))
        self.listen(100)

    def accept(self) -> tuple[socket.socket, Any]:
        self.accepts += 1
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().accept()


class Taken(asyncio.Protocol):
    """The connections that a balancer has taken."""

    def __init__(self) -> None:
        self.transports: list[asyncio.BaseTransport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transports.append(transport)


@dataclass
class Slot:
    """As much of a worker's slot as a balancer looks at."""

    number: int
    pid: int = 1
    silence: float = 0.0
    connections: int = 0


class Balance:
    """A balancer with clients that wait."""

    def __init__(self, path: Path, clients: int = 40, slots: tuple[Slot, ...] = ()) -> None:
        self.listening, self.taken = Listening(path), Taken()
        given: Any = slots
        self.balancer = ConnectionBalancer(
            self.listening, lambda: self.taken, given[0] if slots else None, given
        )
        self.clients = [self.connect() for _ in range(clients)]

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(self.listening.getsockname())
        except OSError:
            client.close()
            raise
        return client

    async def after(self, seconds: float) -> int:
        """How many are taken after so many seconds."""
        await asyncio.sleep(seconds)
        return len(self.taken.transports)

    async def close(self) -> None:
        if self.listening.fileno() != -1:
            self.balancer.stop()
            self.listening.close()
        for transport in self.taken.transports:
            transport.close()
        await asyncio.sleep(0)
        for client in self.clients:
            client.close()


OTHERS = {"none": (), "not there": (Slot(0), Slot(1, pid=0)), "asleep": (Slot(0), Slot(1, silence=1.0))}


@pytest.mark.parametrize("slots", OTHERS.values(), ids=OTHERS)
@in_virtual_time
async def test_a_worker_without_others_that_are_awake_accepts_every_connection(
    slots: tuple[Slot, ...], tmp_path: Path
) -> None:
    balance = Balance(tmp_path / "s", slots=slots)
    assert await balance.after(0.2) == 40
    assert [slot.connections for slot in slots[:1]] == [40] * len(slots[:1])
    await balance.close()


@in_virtual_time
async def test_a_worker_yields_to_one_with_fewer_connections_for_a_limited_time(tmp_path: Path) -> None:
    """Beside another that takes nothing: two at once, then one every fiftieth of a second."""
    balance = Balance(tmp_path / "s", slots=(Slot(0), Slot(1)))
    assert await balance.after(0.01) == 2
    assert 2 + 6 <= await balance.after(0.2) <= 2 + 11
    await balance.close()


@in_virtual_time
async def test_finish_accepts_waiting_connections_and_returns_when_each_has_a_protocol(
    tmp_path: Path,
) -> None:
    """Also beside another worker that has fewer: what is left in a socket that closes is reset."""
    balance = Balance(tmp_path / "s", 20, (Slot(0), Slot(1)))
    path = balance.listening.getsockname()
    await balance.balancer.finish()
    assert len(balance.taken.transports) == 20
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(path)
    await balance.close()


@in_virtual_time
async def test_a_worker_without_descriptors_waits_a_moment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    balance = Balance(tmp_path / "s")
    balance.listening.failure = OSError(errno.EMFILE, "Too many open files")
    assert await balance.after(0.1) == 0
    assert caplog.messages == ["can't accept connections: Too many open files; retrying"]
    assert await balance.after(0.2) == 40
    await balance.close()


# Addresses, descriptors and the end


@pytest.mark.process
def test_a_free_port_is_found_and_an_address_that_can_not_be_bound_is_named() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        for host in ("127.0.0.1", "256.256.256.256", "no.such.host.invalid"):
            with pytest.raises(ServiceError, match=f"{host}:{port}"):
                listen(host, port)
    if socket.has_dualstack_ipv6():
        with listen("::1", 0) as listening:
            assert url_of(listening).startswith("http://[::1]:")


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
def test_new_handshakes_are_dropped_and_waiting_connections_accepted() -> None:
    """And once the socket is shut down, though another descriptor keeps it open, refused."""
    listening = socket.create_server(("127.0.0.1", 0))
    place = listening.getsockname()
    with socket.fromfd(listening.fileno(), socket.AF_INET, socket.SOCK_STREAM) as kept, listening:
        with socket.create_connection(place) as before:
            assert drop_handshakes(kept)
            with pytest.raises(TimeoutError):
                socket.create_connection(place, timeout=0.1)
            taken, _ = listening.accept()
            with taken:
                before.sendall(b"hello")
                assert taken.recv(5) == b"hello"
        listening.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)
        with socket.create_server(place) as again, socket.create_connection(place):
            again.accept()[0].close()


@pytest.fixture
def shutdown(selector: selectors.BaseSelector, clock: Clock) -> Iterator[Shutdown]:
    """Of a service with a listening socket, which waits 7 seconds for load balancers and 20 for requests."""
    settings = Settings.model_validate({"drain_delay": 7, "drain_seconds": 20})
    shared: Any = SimpleNamespace(order=Order.SERVE)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    before = {number: signal.getsignal(number) for number in numbers}
    with socket.socket() as listening:
        shutdown = Shutdown(settings, shared, [listening], selector, clock)
        shutdown.listen_to_signals()
        yield shutdown
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    for end in shutdown._pipe:  # a supervisor ends with it
        end.close()


def orders_at(shutdown: Shutdown, clock: Clock, seconds: list[float]) -> list[Order | None]:
    """The order at each of these seconds from now; None: the workers are to be killed."""
    begun, given = clock.now, list[Order | None]()
    for second in seconds:
        clock.now = begun + second
        given.append(None if shutdown.advance() else shutdown.order)
    return given


def test_a_terminated_service_drains_finishes_and_stops_each_in_its_time(
    shutdown: Shutdown, clock: Clock
) -> None:
    assert orders_at(shutdown, clock, [0, 1_000]) == [Order.SERVE] * 2
    signal.raise_signal(signal.SIGTERM)
    shutdown.take_signals()
    ends = 7 + 20 + SPARE_SECONDS
    assert orders_at(shutdown, clock, [0, 6.9, 7, ends - 0.1, ends, ends + SPARE_SECONDS]) == [
        *(Order.DRAIN, Order.DRAIN, Order.FINISH, Order.FINISH, Order.STOP, None)
    ]


def test_an_interrupt_and_each_further_signal_skip_a_wait(shutdown: Shutdown, clock: Clock) -> None:
    signal.raise_signal(signal.SIGINT)
    shutdown.take_signals()
    assert orders_at(shutdown, clock, [0, 2 * LINGER_SECONDS]) == [Order.FINISH] * 2
    signal.raise_signal(signal.SIGTERM)
    shutdown.take_signals()
    assert orders_at(shutdown, clock, [0, SPARE_SECONDS]) == [Order.STOP, None]


class Limits:
    """Those of a process, as the system would keep them."""

    def __init__(self, soft: int, hard: int) -> None:
        self.now = soft, hard

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Limits:
    made = Limits(*request.param)
    monkeypatch.setattr(resource, "getrlimit", made.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", made.setrlimit)
    return made


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "raised", "taken"),
    [
        ((1024, 524_288), 1000 + 192, 1000),
        ((1024, UNLIMITED), 1000 + 192, 1000),
        ((UNLIMITED, UNLIMITED), UNLIMITED, 1000),
        ((5000, 5000), 5000, 1000),
        ((512, 1024), 1024, 1024 - 192),
        ((208, 208), 208, 16),
    ],
    indirect=["limits"],
)
def test_the_descriptor_limit_is_raised_to_the_hard_limit_at_most(
    limits: Limits, raised: int, taken: int
) -> None:
    settings = Settings(max_connections=1000)
    raise_open_files(settings)
    assert limits.now[0] == raised
    assert connection_limit(settings) == taken


@pytest.mark.parametrize("limits", [(100, 207)], indirect=True)
def test_too_few_descriptors_for_anything_are_refused(limits: Limits) -> None:
    with pytest.raises(ServiceError, match=r"may open 207 files.*ulimit -n.*to 4288"):
        raise_open_files(Settings())
    with pytest.raises(ServiceError, match="to 208"):
        raise_open_files(Settings(max_connections=16))
    raise_open_files(Settings(max_connections=15))  # which is all that was asked for


# ---- What a worker does beside its requests


@in_virtual_time
async def test_a_failed_catch_up_waits_longer_and_longer_and_another_version_is_opened_at_once() -> None:
    """A whole bundle is read at each attempt, and one may have failed for want of memory."""
    clock = asyncio.get_running_loop().time
    attempts: list[float] = []

    async def follow() -> None:
        attempts.append(clock())
        raise MemoryError

    catch_up = CatchUp(follow, clock)
    for _ in range(100):  # ten seconds
        catch_up.begin((2, 0))
        await asyncio.sleep(0.1)
    assert [round(attempt) for attempt in attempts] == [0, 1, 3, 7]
    catch_up.begin((3, 0))
    await asyncio.sleep(0.1)
    assert round(attempts[-1]) == 10


@in_virtual_time
async def test_a_background_task_that_fails_is_down_until_it_runs_again_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = asyncio.get_running_loop().time
    background = BackgroundTasks()
    attempts: list[float] = []

    async def failing() -> None:
        attempts.append(clock())
        if len(attempts) == 1:
            raise OSError("no descriptor left")
        if len(attempts) == 2:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    running = asyncio.Event()

    async def going_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            running.set()

    background.start("failing", failing)
    background.start("going on", going_on)
    seen: list[tuple[str, ...]] = []
    for seconds in (0.5, 1, 10):
        await asyncio.sleep(seconds)
        seen.append(background.down)
    assert seen == [("failing",), ("failing",), ()]
    assert [round(attempt) for attempt in attempts] == [0, 1, 3]
    assert "background task failing failed; starting it again in 1 seconds" in caplog.text
    assert not running.is_set()
    await background.close()
    assert running.is_set()
