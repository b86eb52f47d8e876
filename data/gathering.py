"""Collecting a judged log into packed arrays, and applying the filters that need the whole log."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.errors import ConfigurationError, EmptyDataError
from data.events import Log
from data.filters import Mask, k_core, without_duplicates
from data.ids import vocabulary
from data.manifest import Removed
from data.packing import Events
from data.schema import FilterSettings
from data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Names:
    """The vocabulary of users or items, and the ids as text, by row."""

    vocabulary: Vocabulary
    texts: list[str]

    def take(self, rows: NDArray[np.integer]) -> "Names":
        """Return the names of `rows` (ascending) only."""
        ids = self.vocabulary.ids(rows)
        return Names(Vocabulary(ids), [self.texts[row] for row in rows])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Gathered:
    """Events in order, the users' bounds int64 [U + 1] in them, and the names that their rows refer to."""

    events: Events
    offsets: NDArray[np.int64]
    users: Names
    items: Names
    removed: list[Removed]


def gather(log: Log, filters: FilterSettings) -> Gathered:
    """Collect the events, filter them, and keep the users and items that still have any.

    Raises EmptyDataError naming the filter that left nothing.
    """
    users = Names(*vocabulary(log.unique("user"), log.user_dtype, log.is_text))
    items = Names(*vocabulary(log.unique("item"), log.item_dtype, log.is_text))
    events = log.collect(users.texts, items.texts).in_order()
    events, removed = _filter(events, filters, log.time.kind)
    user_rows, item_rows = np.unique(events.users), np.unique(events.items)
    users, items = users.take(user_rows), items.take(item_rows)
    events = events.renumbered(user_rows, item_rows)
    offsets = events.offsets(len(user_rows))
    if log.time.kind == "position":
        events = events.with_positions(offsets)
    return Gathered(events, offsets, users, items, removed)


def _filter(events: Events, filters: FilterSettings, time_kind: str) -> tuple[Events, list[Removed]]:
    removed: list[Removed] = []

    def keep(mask: Mask, name: str) -> Events:
        removed.append(Removed(filter=name, events=int((~mask).sum())))
        if not mask.any():
            raise EmptyDataError(f"the filter {name} leaves none of {len(mask):,} events; loosen it")
        return events.take(mask)

    if filters.duplicates != "keep":
        if filters.duplicates == "exact" and time_kind == "position":
            raise ConfigurationError('duplicates = "exact" compares times, but the order is that of the file')
        events = keep(without_duplicates(events, filters.duplicates), f"duplicates = {filters.duplicates}")
    if filters.min_user_events > 1 or filters.min_item_events > 1:
        name = f"min_user_events = {filters.min_user_events}, min_item_events = {filters.min_item_events}"
        events = keep(k_core(events, filters.min_user_events, filters.min_item_events), name)
    return events, removed
