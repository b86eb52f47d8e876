"""Deadlines of connections, checked once a second."""

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Deadlines:
    """Seconds to wait for a client.

    `head` and `body` run from the first byte of a request (or from the connection) to the end of its head and
    of its body; `send` is the time for a client to read its response.
    """

    head: float = 10.0
    body: float = 30.0
    send: float = 30.0


class Watched(Protocol):
    """A connection with deadlines."""

    def check_deadlines(self, now: float) -> None:
        """Close if a deadline has passed at `now` (seconds of the loop)."""


class ConnectionReaper:
    """Checks all connections with one timer; a timer each would cost every request."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self.connections: set[Watched] = set()

    def add(self, connection: Watched, loop: asyncio.AbstractEventLoop) -> None:
        """Check a connection until it is removed."""
        self.connections.add(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check, loop)

    def remove(self, connection: Watched) -> None:
        """Stop checking a connection."""
        self.connections.discard(connection)

    def look(self, now: float) -> None:
        """Check all connections at `now` (seconds of the loop)."""
        for connection in tuple(self.connections):
            connection.check_deadlines(now)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self.look(loop.time())
        self._timer = loop.call_later(self._seconds, self._check, loop) if self.connections else None
