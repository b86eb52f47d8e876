"""Brings the versions of a worker up to date: attempts after failures, and stops of the process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from turret.tower.errors import BundleError

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 8.0
STOPPED_SECONDS = 1.0
_TICK_SECONDS = 0.2
_log = logging.getLogger("turret.worker")


class Stops:
    """Whether this process did not run for more than a second, and has not caught up since.

    A stopped process may have missed an activation that all others have reported. `clock` is monotonic.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ran = clock()
        self._seen = self._caught_up = 0
        self._next: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Notice stops on the running event loop."""
        self._note()
        self._ran = self._clock()
        self._next = asyncio.get_running_loop().call_later(_TICK_SECONDS, self.watch)

    def close(self) -> None:
        """Notice no more stops."""
        if self._next is not None:
            self._next.cancel()

    @property
    def seen(self) -> int:
        """How often this process was stopped."""
        self._note()
        return self._seen

    @property
    def are_pending(self) -> bool:
        """Whether it has not caught up since the last stop."""
        return self.seen > self._caught_up

    def caught_up(self, seen: int) -> None:
        """What began when so many stops were seen has ended."""
        self._caught_up = max(self._caught_up, seen)

    def _note(self) -> None:
        if self._clock() - self._ran > STOPPED_SECONDS:
            self._seen += 1
            self._ran = self._clock()


class CatchUp:
    """Opens the active version by `follow`, one attempt at a time.

    An attempt that fails, for whatever reason, is repeated after RETRY_SECONDS, and after twice as long each
    further time: opening a version takes the memory that may be short. Other numbers are tried at once.
    """

    def __init__(self, follow: Callable[[], Awaitable[None]], clock: Callable[[], float] = monotonic) -> None:
        self._follow, self._clock = follow, clock
        self._wanted: object = None
        self._pause, self._next = RETRY_SECONDS, float("-inf")
        self._task: asyncio.Task[None] | None = None

    def begin(self, wanted: object) -> None:
        """Start an attempt to open the version with these numbers, if it is due."""
        if self._task is not None and not self._task.done():
            return
        if wanted != self._wanted:
            self._wanted, self._pause, self._next = wanted, RETRY_SECONDS, float("-inf")
        if self._clock() >= self._next:
            self._task = asyncio.create_task(self._attempt())

    async def _attempt(self) -> None:
        try:
            await self._follow()
        except Exception as error:
            trace = None if isinstance(error, BundleError) else error
            message = "this worker can't open the active version; retrying in %g seconds: %s"
            _log.error(message, self._pause, str(error) or repr(error), exc_info=trace)
            self._next = self._clock() + self._pause
            self._pause = min(2 * self._pause, LONGEST_RETRY_SECONDS)
