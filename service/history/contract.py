"""What every store of histories promises; `tests/contracts` holds them to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Event:
    """One event: `user` is the id as text (7 and "7" are one user), `time` milliseconds since 1970."""

    event_id: str
    user: str
    item: int | str
    time: int
    kind: str | None = None


class HistoryStore(Protocol):
    """Events by user, in the order of their times and, where those are equal, of their arrival.

    Every method raises HistoryUnavailableError when the store can't do it now.
    """

    async def append(self, events: Sequence[Event]) -> int:
        """Store events, all or none, and return how many were new; an event_id is stored once.

        When this returns, the events are in what every later call reads, and survive the death of the
        process if the store is a lasting one.
        """

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, list[Event]]:
        """Return each user's newest `limit` events, oldest first; [] for an unknown user."""

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        """Return how many events of a user are stored, and the newest `limit` of them, oldest first."""

    async def forget(self, user: str) -> int:
        """Delete a user's events and return how many they were."""

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
