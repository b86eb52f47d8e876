"""Ports for servers that a test starts."""

import random
import socket
from contextlib import ExitStack, suppress

# Below the ports that systems give to clients: one of those may be taken by a connection of another test.
_FIRST, _LAST = 20_000, 30_000
_LATE = range(12_000, 20_000)


def free_port() -> int:
    """A port of this machine that nothing uses."""
    (port,) = free_ports(1)
    return port


def late_port() -> int:
    """A port for a server that takes it much later: no other test is given it meanwhile."""
    (port,) = free_ports(1, _LATE)
    return port


def free_ports(count: int, among: range = range(_FIRST, _LAST)) -> list[int]:
    """Different ports of this machine that nothing uses."""
    with ExitStack() as listening:
        found: list[int] = []
        for port in random.SystemRandom().sample(among, 100):
            with suppress(OSError):
                listening.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
            if len(found) == count:
                return found
    raise AssertionError(f"fewer than {count} ports from {among.start} to {among.stop} are free")
