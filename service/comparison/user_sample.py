"""A sample of the stored users with their histories, from a bounded scan of the store."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable

from turret.service.comparison.background import BackgroundThread
from turret.service.errors import HistoryUnavailableError
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.stores.contract import Event, History, HistoryStore

SCAN_SECONDS = 5.0
_EVENTS = 100_000
_LATEST = 2**62  # ms since 1970: later than any stored event


class UserSample:
    """A uniform sample of at most `size` of the users that are added; the same for the same users."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._random = random.Random(0)
        self._sampled: list[History] = []
        self._users = 0
        self.events = 0
        self._user: str | None = None
        self._items: deque[int | str] = deque(maxlen=HISTORY_LIMIT)
        self._times: deque[int] = deque(maxlen=HISTORY_LIMIT)

    def add(self, events: Iterable[Event]) -> None:
        """Add events; those of a user come one after another, oldest first."""
        for event in events:
            if event.user != self._user:
                self._finish_user()
                self._user = event.user
            self._items.append(event.item)
            self._times.append(event.time)
            self.events += 1

    def histories(self) -> list[History]:
        """The newest items of each sampled user."""
        self._finish_user()
        return self._sampled

    def _finish_user(self) -> None:
        """Reservoir sampling: each of n users is kept with the probability size / n."""
        if self._user is None:
            return
        self._users += 1
        position = len(self._sampled)
        if position < self._size:
            self._sampled.append(History((), ()))
        else:
            position = self._random.randrange(self._users)
        if position < self._size:
            self._sampled[position] = History(tuple(self._items), tuple(self._times))
        self._user = None
        self._items.clear()
        self._times.clear()


async def sample_users(
    store: HistoryStore, size: int, thread: BackgroundThread, seconds: float = SCAN_SECONDS
) -> list[History]:
    """Sample users among those of the first events of a scan, read for at most `seconds`.

    Returns what was read before the store became unavailable.
    """
    sample = UserSample(size)
    try:
        async with asyncio.timeout(seconds):
            await _read(store, sample, thread)
    except (TimeoutError, HistoryUnavailableError):
        pass  # the users so far are a sample too
    return await thread.run(sample.histories)


async def _read(store: HistoryStore, sample: UserSample, thread: BackgroundThread) -> None:
    async for events in store.scan(0, _LATEST):
        await thread.run(sample.add, events)
        if sample.events >= _EVENTS:
            return
