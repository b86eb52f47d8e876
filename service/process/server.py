"""A worker process: its addresses, and a uvicorn server that obeys its supervisor and reports on a pipe."""

import asyncio
import contextlib
import gc
import math
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from time import monotonic
from types import FrameType
from typing import NoReturn

import uvicorn

from turret.data.errors import TurretError
from turret.service.bounded_process import end_with_parent
from turret.service.components import Components, WorkerContext
from turret.service.errors import ServiceError
from turret.service.http.app import Application, create_app
from turret.service.http.guard import guarded
from turret.service.settings import Settings
from turret.service.stores.sqlite.shared import open_records
from turret.service.versions.folder import first_record

# The supervisor's orders: answer at /readyz that no more requests should come; finish requests under way.
DRAIN, FINISH = signal.SIGUSR1, signal.SIGUSR2
_TICKS = 10  # of uvicorn in a second
_SWITCH_SECONDS = 0.0005
# Objects that bring a collection: Python's 700, 10 and 10 collect the answers that wait for their log again
# and again. With the import before the fork, logging takes 16 us of a request in place of 46
# (`benchmarks.answer_log`).
COLLECTED = (50_000, 20, 50)
_LINE_BYTES = 4_000  # written at once
# The connections of a process, and the files beside them: without a descriptor that is not for connections, a
# process can't read a key file, open a version or answer a probe.
_MAX_CONNECTIONS, _MIN_CONNECTIONS, _RESERVED_FILES = 4_096, 16, 256
UNREAD_SECONDS = 30.0
# Sockets of a worker for each address. uvloop accepts one connection of a socket in a turn of its loop: with
# one socket, 320 clients that connect at once hold the next client for 320 turns.
LISTENERS = 8


def config_of(settings: Settings, app: Application) -> uvicorn.Config:
    """Configure the server of an application."""
    components, limit = app.state.components, connection_limit()
    guard = guarded(limit, components.metrics.count_refusal, components.admin_port)
    return uvicorn.Config(
        app,
        lifespan="on",
        http=guard if settings.guard else "httptools",
        # The guard closes connections beyond the limit; uvicorn lets them be, and refuses all requests.
        limit_concurrency=None if settings.guard else limit,
        ws="none",
        log_config=None,  # uvicorn's lines go through our handlers
        log_level="error",  # uvicorn's warnings are about bad requests: any client could fill the log
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.drain_seconds,
    )


def connection_limit() -> int:
    """Raise the descriptor limit of this process to the hard limit; return the connections that it allows.

    Raises ServiceError where the limit allows almost none.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit beside an infinite one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    if hard < _MIN_CONNECTIONS + _RESERVED_FILES:
        raise ServiceError(
            f"a process may open {hard} files, and {_RESERVED_FILES} of them are not for connections; raise "
            "the limit (`ulimit -n`, LimitNOFILE= of systemd, ulimits of docker compose) to "
            f"{_MAX_CONNECTIONS + _RESERVED_FILES}"
        )
    return min(_MAX_CONNECTIONS, hard - _RESERVED_FILES)


def reserve(host: str, port: int, option: str = "port") -> socket.socket:
    """Bind an address that `share` may then bind too; port 0 chooses a free port. Raises ServiceError.

    The socket never listens. The options of the socket change once it is bound, or two services could have
    one port unnoticed.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        reserved = _bind(family, (host, port), is_shared=False)
    except OSError as error:
        raise ServiceError(
            f"can't listen on {host}:{port} ({error.strerror}); stop the process that uses it, or choose "
            f"another {option}"
        ) from None
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def share(reserved: socket.socket, unread_seconds: float = UNREAD_SECONDS) -> socket.socket:
    """Bind the address of `reserved` for a worker: the kernel spreads connections over sockets that listen.

    It also ends connections whose client takes nothing for `unread_seconds` (Linux only).
    """
    bound = _bind(reserved.family, reserved.getsockname(), is_shared=True)
    if sys.platform == "linux":  # a connection inherits the option
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_seconds * 1000))
    return bound


def listeners(reserved: Sequence[socket.socket]) -> list[socket.socket]:
    """Bind the sockets of a worker, `LISTENERS` for each address."""
    return [share(address) for address in reserved for _ in range(LISTENERS)]


def _bind(family: int, address: tuple[object, ...], is_shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def work(
    settings: Settings, context: WorkerContext, pipe: int, reserved: Sequence[socket.socket]
) -> NoReturn:
    """Serve on the addresses of `reserved` in this forked process, and report on `pipe`.

    Never returns: exits with os._exit so that the parent's cleanup does not run in the child.
    """
    status = 1
    try:
        assert context.supervisor is not None
        end_with_parent(context.supervisor)
        # Terminals and some service managers signal every process; only the supervisor's orders count, so
        # that all workers end together.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        # The event loop gets the interpreter back after this time while another thread opens a version.
        sys.setswitchinterval(_SWITCH_SECONDS)
        gc.set_threshold(*COLLECTED)
        os.set_blocking(pipe, False)
        _serve(settings, context, pipe, reserved)
        status = 0
    except TurretError as error:
        send(pipe, f"failed {error}")
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def send(pipe: int, words: str) -> None:
    """Send a line to the supervisor, with the pid of this process, unless it reads none."""
    line = " ".join([str(os.getpid()), *words.splitlines()])
    with contextlib.suppress(OSError):
        os.write(pipe, line.encode()[:_LINE_BYTES] + b"\n")


def _serve(settings: Settings, context: WorkerContext, pipe: int, reserved: Sequence[socket.socket]) -> None:
    assert context.folder is not None
    records = open_records(settings, context.folder)
    context.record = asyncio.run(first_record(settings.bundles, records, settings.wait))
    app = create_app(settings, context)
    server = Server(config_of(settings, app), app.state.components, pipe)
    signal.signal(DRAIN, server.drain)
    signal.signal(FINISH, server.finish)
    # Orders may have come before: the supervisor blocks their signals in all its children.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (DRAIN, FINISH))
    server.run(sockets=listeners(reserved))


class Server(uvicorn.Server):
    """A uvicorn server that ends on `DRAIN` and `FINISH`, and sends a heartbeat each second."""

    def __init__(self, config: uvicorn.Config, components: Components, pipe: int) -> None:
        super().__init__(config)
        self._components = components
        self._pipe = pipe
        self._ticked, self._stall = math.inf, 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ignore the signals that uvicorn listens to: the supervisor has them too, and gives orders."""

    def drain(self, *_: object) -> None:
        """Answer 503 at /readyz, and let each answer be the last of its connection."""
        self._components.context.is_draining = True

    def finish(self, *_: object) -> None:
        """Accept no more connections, finish running requests and end."""
        self.drain()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell the supervisor."""
        await super().startup(sockets)
        send(self._pipe, f"ready {self._components.model_holder.version or ''}")

    async def on_tick(self, counter: int) -> bool:
        """Measure the longest delay of the event loop, and send a heartbeat."""
        now = monotonic()
        delay, self._ticked = now - self._ticked - 1 / _TICKS, now
        if delay > self._stall:
            self._stall = delay
            self._components.metrics.loop_stall.set(delay)
        if counter % _TICKS == 0:
            send(self._pipe, "alive")
        return await super().on_tick(counter)
