"""The range of valid event times: clock errors are clamped, expired events dropped."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from turret.service.stores.contract import Event

CLOCK_SKEW = 300_000  # milliseconds by which the time of an event may be in the future
_DAY = 86_400_000  # milliseconds


class WindowedEvents(NamedTuple):
    """Events to store, the number of those with a clamped time, and the number of expired ones."""

    events: list[Event]
    clamped: int
    expired: int


def in_window(
    events: Sequence[Event], now: int, max_age: int | None = None, skew: int = CLOCK_SKEW
) -> WindowedEvents:
    """Clamp the times of events to those from 1970 until `skew` from `now`, and drop those before `max_age`.

    All are milliseconds, `now` since 1970. A time further in the future comes from a wrong clock and would
    stay its user's newest event for good: it becomes now. A time before 1970 becomes 1970.
    """
    last = now + skew
    clamped = [
        event if 0 <= event.time <= last else event._replace(time=now if event.time > last else 0)
        for event in events
    ]
    changed = sum(old is not new for old, new in zip(events, clamped, strict=True))
    unexpired = list(drop_expired(clamped, oldest_kept(max_age, now)))
    return WindowedEvents(unexpired, changed, len(clamped) - len(unexpired))


def days(count: int | None) -> int | None:
    """Convert days to milliseconds; None stays None (no limit)."""
    return None if count is None else count * _DAY


def oldest_kept(max_age: int | None, now: int | None = None) -> int | None:
    """Return the earliest time within `max_age`, in milliseconds since 1970; None: no limit."""
    if max_age is None:
        return None
    return (time.time_ns() // 1_000_000 if now is None else now) - max_age


def drop_expired(events: Sequence[Event], oldest: int | None) -> Sequence[Event]:
    """Drop the events before `oldest`."""
    return events if oldest is None else [event for event in events if event.time >= oldest]
