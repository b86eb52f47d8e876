"""Sockets and the servers on them."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from service.errors import ServiceError
from service.settings import Settings


class Server(uvicorn.Server):
    """A server that leaves the signals alone: the worker that runs it is told when to end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def make_server(settings: Settings, app: FastAPI, lifespan: uvicorn.config.LifespanType) -> Server:
    """Make the server of an application, with the settings of the service."""
    return Server(
        uvicorn.Config(
            app,
            lifespan=lifespan,
            ws="none",
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


def url_of(listening: socket.socket) -> str:
    """Write where a socket listens as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
