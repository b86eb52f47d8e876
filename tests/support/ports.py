"""Ports for servers that a test starts: bound as port 0, read back, and held."""

import os
import socket
import weakref


def held_port(owner: object) -> int:
    """A port of 127.0.0.1 for a server of a test, which nothing else is given as long as `owner` lives.

    The port is bound and never listens: it refuses connections until the server listens on it, and again once
    the server has ended. Linux lets a server take it that sets SO_REUSEADDR, as Redis, Go, the JVM, libuv and
    asyncio do, and gives it to no other socket that asks for port 0.
    """
    descriptor, port = _hold()
    weakref.finalize(owner, os.close, descriptor)
    return port


def free_port() -> int:
    """A port as `held_port` gives it, until this process ends."""
    _, port = _hold()
    return port


def _hold() -> tuple[int, int]:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    return held.detach(), port
