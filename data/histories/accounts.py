"""Accounts that are no people, by the number and the pace of their events."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np

from turret.data.events.event_arrays import Events
from turret.data.vocabulary import Vocabulary

FAST, _DAY = 1_000, 86_400_000
"""The number of events within a day that no person has: one event a minute for 17 hours."""
_LEFT_OUT = "left_out_users.json"


def save_left_out(folder: Path, users: Iterable[str]) -> None:
    """Write the users with too many events, by their ids as texts: their later events are left out too."""
    if ids := sorted({*users}):
        Vocabulary(ids).save(folder / _LEFT_OUT)


def left_out_of(folder: Path) -> list[str]:
    """Return the users whom `save_left_out` has written."""
    if not (folder / _LEFT_OUT).exists():
        return []
    return [*map(str, Vocabulary.load(folder / _LEFT_OUT).all_ids)]


@dataclass
class Accounts:
    """Counts the events of each user of a log, before duplicates are left out.

    Attributes:
        most: users with more events are left out.
        has_times: whether the log has times, which show the pace of a user.
        users: the ids of all users.
        left_out: the ids of the users who are left out, as texts.
        removed: the number of rows of the users who are left out.
        events: the number of events of the users who stay.
        others: the most events of a user that is neither left out nor fast.
        fast: the number of events by id, of users with `FAST` events within a day who are not left out.
    """

    most: int | None
    has_times: bool
    users: Vocabulary
    left_out: list[str] = field(default_factory=list)
    removed: int = 0
    events: int = 0
    others: int = 1
    fast: dict[int | str, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def people(self, events: Events) -> Events:
        """Count sorted events of whole users, and return the events of the users who stay.

        Given negatives are no events, and go with their user. Several threads may call this method.
        """
        starts = np.flatnonzero(np.diff(events.users, prepend=-1))
        rows, sizes = events.users[starts], np.diff(starts, append=len(events))
        are_events = np.ones(len(events), dtype=bool) if events.labels is None else events.labels == 1
        counts = np.add.reduceat(are_events, starts, dtype=np.int64) if len(starts) else starts
        is_kept = counts <= (np.inf if self.most is None else self.most)
        is_fast = np.zeros(len(starts), dtype=bool)
        for user in np.flatnonzero(is_kept & (counts >= FAST)).tolist() if self.has_times else ():
            times = np.sort(events.times[starts[user] : starts[user] + sizes[user]])
            is_fast[user] = (times[FAST - 1 :] - times[: 1 - FAST]).min() < _DAY
        people = events if is_kept.all() else events.take(np.repeat(is_kept, sizes))
        with self._lock:
            self.others = max(self.others, int(counts[is_kept & ~is_fast].max(initial=1)))
            self.events += int(counts[is_kept].sum())
            if is_fast.any():
                self.fast |= dict(zip(self.users.ids(rows[is_fast]), counts[is_fast].tolist(), strict=True))
            if len(people) < len(events):
                self.left_out += map(str, self.users.ids(rows[~is_kept]))
                self.removed += len(events) - len(people)
        return people
