"""Ports for servers that a test starts."""

import os
import random
import socket
from contextlib import ExitStack, closing, suppress

# One process of pytest-xdist draws from its own share: no other takes a port between the draw and its use.
_WORKER, _WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]), 8
# Below the ports that systems give to clients: one of those may be taken by a connection of another test.
_PORTS = range(20_000 + _WORKER % _WORKERS, 30_000, _WORKERS)
_LATE = range(12_000 + _WORKER % _WORKERS, 20_000, _WORKERS)


def free_port() -> int:
    """A port of this machine that nothing uses."""
    (port,) = free_ports(1)
    return port


def late_port() -> int:
    """A port for a server that takes it much later: no other test is given it meanwhile."""
    (port,) = free_ports(1, _LATE)
    return port


def free_ports(count: int, among: range = _PORTS) -> list[int]:
    """Different ports of this machine that nothing uses."""
    with ExitStack() as listening:
        found: list[int] = []
        for port in random.SystemRandom().sample(among, 100):
            with suppress(OSError):
                # Without SO_REUSEADDR: Milvus takes no port with connections that were closed just now.
                listening.enter_context(closing(socket.socket())).bind(("", port))
                found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"fewer than {count} ports from {among.start} to {among.stop} are free")
