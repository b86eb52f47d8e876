"""A concurrency limit for requests of one kind."""

from collections.abc import Callable
from time import monotonic
from typing import Protocol

# A response unread for so long is aborted when another request needs its place.
STALLED_SECONDS = 0.5


class Connection(Protocol):
    """The part of asyncio's transport that aborts a response."""

    def abort(self) -> None:
        """Close at once and drop unsent bytes."""

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""


class Limiter:
    """At most `limit` requests at a time, each for at most `seconds` (None: no timeout), until it is sent."""

    def __init__(
        self, name: str, limit: int, seconds: float | None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.name = name
        self.limit = limit
        self.seconds = seconds
        self._clock = clock
        self.active = 0
        self.refused = 0
        self._unsent: dict[Connection, float] = {}  # when each unsent response was written, oldest first
        self._aborted: set[Connection] = set()  # their places are released already

    def has_room(self) -> bool:
        """Whether `try_acquire` would succeed."""
        return self.active < self.limit or self._stalled() is not None

    def try_acquire(self) -> bool:
        """Take a place, if need be that of a stalled response; count a refusal if there is none."""
        if self.active < self.limit or self._abort_stalled():
            self.active += 1
            return True
        self.refused += 1
        return False

    def add_unsent(self, connection: Connection) -> None:
        """Record that a request's response is written but unsent."""
        self._unsent[connection] = self._clock()

    def release(self, connection: Connection) -> None:
        """Release the place of a request."""
        self._unsent.pop(connection, None)
        if connection in self._aborted:
            self._aborted.remove(connection)
        else:
            self.active -= 1

    def _stalled(self) -> Connection | None:
        oldest = next(iter(self._unsent), None)
        if oldest is None or self._clock() - self._unsent[oldest] < STALLED_SECONDS:
            return None
        return oldest

    def _abort_stalled(self) -> bool:
        oldest = self._stalled()
        if oldest is None:
            return False
        del self._unsent[oldest]
        self._aborted.add(oldest)
        self.active -= 1
        oldest.abort()
        return True
