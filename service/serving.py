"""Sockets, signals and the servers on them."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from service.errors import ServiceError
from service.protocol import Guards, guarded
from service.settings import Settings
from service.state import State
from service.watch import Deadlines, Watch


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
    raise_open_files(settings.max_connections)
    protocol = guarded(_guards(settings, app.state.service))
    servers = [_server(settings, app, protocol, lifespan="on")]
    with listen(settings.host, settings.port) as listening:
        sockets = [listening]
        if admin_app is not None and settings.admin_port is not None:
            servers.append(_server(settings, admin_app, protocol, lifespan="off"))
            sockets.append(listen(settings.admin_host, settings.admin_port, "--admin-port"))
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


def _guards(settings: Settings, state: State) -> Guards:
    deadlines = Deadlines(settings.head_seconds, settings.body_seconds, settings.send_seconds)
    return Guards(state.admission, Watch(), deadlines, settings.max_connections)


def _server(
    settings: Settings, app: FastAPI, protocol: type[asyncio.Protocol], lifespan: uvicorn.config.LifespanType
) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            lifespan=lifespan,
            http=protocol,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=settings.trusted_proxies is not None,
            forwarded_allow_ips=settings.trusted_proxies,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=settings.drain_seconds,
        )
    )


def raise_open_files(connections: int) -> None:
    """Let the process have as many files open as its connections need, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 512 if hard == resource.RLIM_INFINITY else min(hard, connections + 512)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(host: str, port: int, option: str = "port") -> socket.socket:
    """Listen on an address; port 0 takes a free one. Raises ServiceError when it can't be done."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ServiceError(
            f"{host}:{port} can't be listened on ({_reason(error)}); stop what uses it, or choose another "
            f"{option}"
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
