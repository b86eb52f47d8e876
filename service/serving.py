"""Sockets, signals and the servers on them."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from service.errors import ServiceError
from service.settings import Settings
from service.state import State


class _Server(uvicorn.Server):
    """A server that leaves the signals alone: they stop all servers of the process, and it ends with "
    "status 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(settings: Settings, app: FastAPI, admin_app: FastAPI | None) -> None:
    """Serve `app`, and `admin_app` on the admin port, until SIGINT or SIGTERM.

    Raises ServiceError when an address can't be listened on.
    """
    servers = [_server(settings, app, lifespan="on")]
    with listen(settings.host, settings.port) as listening:
        sockets = [listening]
        if admin_app is not None and settings.admin_port is not None:
            servers.append(_server(settings, admin_app, lifespan="off"))
            sockets.append(listen("127.0.0.1", settings.admin_port))
        greeting = _greeting(app.state.service, sockets)
        with asyncio.Runner(loop_factory=servers[0].config.get_loop_factory()) as runner:
            runner.run(_serve_all(servers, sockets, greeting))


async def _serve_all(servers: list[_Server], sockets: list[socket.socket], greeting: str) -> None:
    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit  # a second signal doesn't wait any longer
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    print(greeting, flush=True)  # only now, as whoever reads it may stop us at once
    pairs = zip(servers, sockets, strict=True)
    await asyncio.gather(*(server.serve(sockets=[listening]) for server, listening in pairs))
    for server in servers:
        if server.force_exit:  # then the server has not told the application that it ends
            await server.lifespan.shutdown()


def _server(settings: Settings, app: FastAPI, lifespan: uvicorn.config.LifespanType) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            lifespan=lifespan,
            ws="none",
            log_config=None,  # what it says goes the way of all that is logged
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=settings.drain_seconds,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 takes a free one. Raises ServiceError when it can't be done."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ServiceError(
            f"{host}:{port} can't be listened on ({_reason(error)}); stop what uses it, or choose another "
            f"port"
        ) from None


def _reason(error: OSError) -> str:
    # create_server repeats the address in its text; resolving names has errors of its own, below zero.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _greeting(state: State, sockets: list[socket.socket]) -> str:
    urls = [url_of(listening) for listening in sockets]
    admin = f", admin calls at {urls[1]}" if len(urls) > 1 else ""
    does = f"serves version {state.slot.version}" if state.slot.version else "waits for a version"
    return f"turret {does} at {urls[0]} (calls: {urls[0]}/docs{admin})"


def url_of(listening: socket.socket) -> str:
    """Write where a socket listens as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
