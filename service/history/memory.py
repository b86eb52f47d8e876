"""Histories in memory, gone with the process: for tests and for trying things out."""

from collections.abc import Sequence
from operator import attrgetter

from service.history.contract import Event


class MemoryHistory:
    """A HistoryStore in a dict."""

    def __init__(self) -> None:
        self._events: dict[str, Event] = {}  # in the order of arrival, which a stable sort keeps

    async def append(self, events: Sequence[Event]) -> int:
        """Store events; see HistoryStore."""
        before = len(self._events)
        for event in events:
            self._events.setdefault(event.event_id, event)
        return len(self._events) - before

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, list[Event]]:
        """Return the newest events of each user; see HistoryStore."""
        return {user: self._of(user)[-limit:] for user in users}

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return a user's count and newest events; see HistoryStore."""
        events = self._of(user)
        return len(events), events[-limit:]

    async def forget(self, user: str) -> int:
        """Delete a user's events; see HistoryStore."""
        events = self._of(user)
        for event in events:
            del self._events[event.event_id]
        return len(events)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _of(self, user: str) -> list[Event]:
        return sorted(
            (event for event in self._events.values() if event.user == user), key=attrgetter("time")
        )
