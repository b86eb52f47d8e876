"""Histories and items in memory, lost with the process: for tests and trials."""

import random
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from operator import attrgetter

from turret.service.errors import ItemsOvertakenError
from turret.service.settings import Settings
from turret.service.stores.contract import (
    CHANGES_PAGE,
    COUNT_LIMIT,
    Change,
    Changes,
    Event,
    History,
    StoreKind,
    Stores,
)
from turret.service.stores.window import days, drop_expired, oldest_kept

_TIME = attrgetter("time")


class MemoryHistory:
    """A HistoryStore in a dict."""

    def __init__(self, max_age: int | None = None) -> None:
        self._max_age = max_age
        self._ids: dict[str, set[str]] = {}  # event ids by user
        self._by_user: dict[str, list[Event]] = {}  # by time; equal ones in the order of arrival

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        stored = 0
        for event in drop_expired(events, oldest_kept(self._max_age)):
            of_user, ids = self._of(event.user), self._ids.setdefault(event.user, set())
            if event.event_id not in ids:
                ids.add(event.event_id)
                insort(of_user, event, key=_TIME)
                self._by_user[event.user] = of_user
                stored += 1
        return stored

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        """Return users' newest events; see HistoryStore."""
        newest = {user: self._of(user)[-limit:] for user in users}
        return {
            user: History([event.item for event in events], [event.time for event in events])
            for user, events in newest.items()
        }

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        events = self._of(user)
        return min(len(events), COUNT_LIMIT), events[-limit:]

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        """Iterate over the events of a range of times; see HistoryStore."""
        for user in list(self._by_user):
            events = self._of(user)
            begin, end = (bisect_left(events, time, key=_TIME) for time in (first, last))
            if begin < end:
                yield events[begin:end]

    async def random_user(self) -> str | None:
        """Return a user with events; see HistoryStore."""
        users = list(self._by_user)
        shuffled = random.sample(users, len(users))
        return next((user for user in shuffled if self._of(user)), None)

    async def forget(self, user: str) -> int:
        """Delete a user's events; see HistoryStore."""
        events = self._of(user)
        self._ids.pop(user, None)
        self._by_user.pop(user, None)
        return len(events)

    async def health_warnings(self) -> list[str]:
        """None: an operator who names memory expects the loss."""
        return []

    async def close(self) -> None:
        """Nothing to release."""

    def _of(self, user: str) -> list[Event]:
        """A user's events; expired ones are deleted first."""
        events = self._by_user.get(user, [])
        oldest = oldest_kept(self._max_age)
        if oldest is not None and events and events[0].time < oldest:
            expired = bisect_left(events, oldest, key=_TIME)
            self._ids[user].difference_update(event.event_id for event in events[:expired])
            del events[:expired]
        return events


class MemoryItems:
    """An ItemStore in a dict."""

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}  # in the order of their numbers
        self._last = 0

    async def put(
        self, item: str, features: bytes, fields: bytes, time: int, highest: int | None = None
    ) -> int:
        """Store an item; see ItemStore."""
        if highest is not None and self._last >= highest:
            raise ItemsOvertakenError
        return self._change(item, time, features, fields)

    async def withdraw(self, item: str, time: int) -> int:
        """Withdraw an item; see ItemStore."""
        return self._change(item, time, None, None)

    async def changes(self, since: int, limit: int = CHANGES_PAGE) -> Changes:
        """Return the changes; see ItemStore."""
        later = (change for change in self._changes.values() if change.number > since)
        page = list(islice(later, limit))
        return Changes(page[-1].number if len(page) == limit else self._last, page)

    async def close(self) -> None:
        """Nothing to release."""

    def _change(self, item: str, time: int, features: bytes | None, fields: bytes | None) -> int:
        self._last += 1
        self._changes.pop(item, None)
        self._changes[item] = Change(item, self._last, time, features, fields)
        return self._last


def _open(settings: Settings) -> Stores:
    return Stores(MemoryHistory(days(settings.keep_days)), MemoryItems())


MEMORY = StoreKind("memory://", _open, is_lasting=False, is_shared=False)
