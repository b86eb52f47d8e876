"""Listening sockets and uvicorn servers on them."""

import asyncio
import logging
import math
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from turret.service.errors import ServiceError
from turret.service.http.app import Application
from turret.service.http.guard import Limits, guarded
from turret.service.process.connection_balancer import ConnectionBalancer
from turret.service.process.open_files import connection_limit
from turret.service.settings import Settings
from turret.service.worker_context import WorkerContext

LINGER_SECONDS = 0.5
_POLL_SECONDS = 0.02
_log = logging.getLogger("turret.worker")


class Server(uvicorn.Server):
    """A uvicorn server without signal handlers: its worker ends it."""

    def __init__(self, config: uvicorn.Config, context: WorkerContext | None = None) -> None:
        super().__init__(config)
        self._context = context
        self._balancers: list[ConnectionBalancer] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and accept connections from `sockets`."""
        await super().startup(sockets=[])
        slot = self._context.worker_slot if self._context else None
        slots = self._context.shared_state.slots if self._context else ()
        self._balancers = [
            ConnectionBalancer(listening, self._protocol, slot, slots) for listening in sockets or ()
        ]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Linger, accept no more connections, and wait for running requests.

        While lingering, requests on kept connections are answered with `Connection: close`. The caller shuts
        the application down, as other servers may still need it.
        """
        begun, seconds = asyncio.get_running_loop().time(), self.config.timeout_graceful_shutdown
        patience = math.inf if seconds is None else seconds
        await self._wait(begun + min(LINGER_SECONDS, patience))
        await asyncio.gather(*(balancer.finish() for balancer in self._balancers))
        await self._wait(begun + patience, self._close_idle)
        if not self.force_exit:
            await self._cancel_rest()

    async def _wait(self, end: float, act: Callable[[], None] = lambda: None) -> None:
        """Wait until no connection or task is left, at most until `end`."""
        while (self.server_state.connections or self.server_state.tasks) and not self.force_exit:
            act()
            if asyncio.get_running_loop().time() >= end:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _close_idle(self) -> None:
        """Close idle connections, also busy ones after their response, but for those with unread input."""
        poll, connections = select.poll(), {}
        for connection in self.server_state.connections:
            if not connection.transport.is_closing():
                file = connection.transport.get_extra_info("socket").fileno()
                connections[file] = connection
                poll.register(file, select.POLLIN)
        pending = {file for file, _ in poll.poll(0)}
        for file in connections.keys() - pending:
            connections[file].shutdown()

    async def _cancel_rest(self) -> None:
        """Cancel the requests that exceed the drain time; they get an error response."""
        if tasks := tuple(self.server_state.tasks):
            _log.error("%d requests exceeded the drain time and are cancelled", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=LINGER_SECONDS)

    def _protocol(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        instance: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return instance

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


def make_server(
    settings: Settings,
    app: Application,
    lifespan: uvicorn.config.LifespanType,
    context: WorkerContext | None = None,
    limit: int | None = None,
) -> Server:
    """Make the server of an application; `limit` connections, by default the limit of the process."""
    limit = limit or connection_limit(settings)
    count = app.state.components.metrics.count_refusal
    limits = Limits(limit, count)
    return Server(
        uvicorn.Config(
            app,
            lifespan=lifespan,
            http=guarded(limits) if settings.guard else "httptools",
            # The guard closes connections beyond the limit; uvicorn lets them be, and refuses all requests.
            limit_concurrency=None if settings.guard else limit,
            ws="none",
            log_config=None,  # its lines go through our handlers
            log_level="error",  # its warnings are about bad requests: any client could fill the log
            access_log=False,
            server_header=False,
            proxy_headers=settings.trusted_proxies is not None,
            forwarded_allow_ips=settings.trusted_proxies,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=settings.drain_seconds,
        ),
        context,
    )


def listen(host: str, port: int, option: str = "port") -> socket.socket:
    """Listen on an address; port 0 chooses a free one. Raises ServiceError."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ServiceError(
            f"can't listen on {host}:{port} ({_reason(error)}); stop the process that uses it, or choose "
            f"another {option}"
        ) from None


def _reason(error: OSError) -> str:
    # create_server repeats the address in its text; name resolution has negative error numbers.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
