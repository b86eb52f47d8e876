"""Attribution: the answer and the place that each event is an outcome of, in one pass over the answers.

An event that names an answer is an outcome of it if the answer has the item, and else of none. An event
without such a name is an outcome of the newest answer that showed the item to the visitor, if that is at most
`within` before. Each event counts once, at the first place of its item.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turret.data.answers.events import NAME, Names, OutcomeEvents
from turret.data.ranges import ranges

Integers = NDArray[np.int64]
_EARLIEST = -(2**62)


class _Shown(NamedTuple):
    """Items that answers showed: the row of the answer in its block, the code of the item, and the place."""

    rows: Integers
    items: Integers
    places: Integers


class _Pairs:
    """Events by a name and an item, in the order of their times; `events` are their positions."""

    def __init__(self, names: Names, items: Integers, times: Integers, events: Integers) -> None:
        self.names, of_name = np.unique(names, return_inverse=True)
        self._most = int(items.max(initial=0)) + 1
        self._pairs, of_pair = np.unique(of_name * self._most + items, return_inverse=True)
        self._first = int(times.min(initial=0))
        self._span = int(times.max(initial=0)) - self._first + 1
        keys = of_pair * self._span + (times - self._first)
        order = np.argsort(keys, kind="stable")
        self._keys, self._events = keys[order], events[order]

    def code(self, names: Names) -> Integers:
        """The codes [N] of names, -1 for a name that no event has."""
        if not len(self.names):
            return np.full(len(names), -1)
        codes = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(self.names[codes] == names, codes, -1)

    def find(
        self, names: Integers, items: Integers, first: Integers, last: Integers
    ) -> tuple[Integers, Integers]:
        """Return the events of each name and item [N] with first <= time <= last, and the row of each."""
        pairs = names * self._most + items
        codes = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        rows = np.flatnonzero((self._pairs[codes] == pairs) & (items < self._most))
        base = codes[rows] * self._span
        low = np.searchsorted(self._keys, base + np.clip(first[rows] - self._first, 0, self._span))
        high = np.searchsorted(
            self._keys, base + np.clip(last[rows] - self._first, -1, self._span - 1), side="right"
        )
        counts = np.maximum(high - low, 0)
        return self._events[ranges(low, counts)], np.repeat(rows, counts)


class Attribution:
    """The outcomes so far, an entry an event [E].

    `answers` are the ids of the answers, empty for none, `times` and `visitors` those of the answers,
    `places` those of the items, and `groups` the numbers that `add` receives with the answers.
    """

    def __init__(self, events: OutcomeEvents, within: int) -> None:
        count, self._within = len(events.times), within
        self.answers, self.visitors = np.zeros(count, NAME), np.zeros(count, NAME)
        self.times, self.places = np.full(count, _EARLIEST), np.zeros(count, np.int64)
        self.groups = np.full(count, -1)
        self._items = pc.unique(events.items)
        items = pc.index_in(events.items, self._items).to_numpy().astype(np.int64)
        is_named = events.answers != b""
        named, others = np.flatnonzero(is_named), np.flatnonzero(~is_named)
        # The time of a named answer does not matter.
        self._named = _Pairs(events.answers[named], items[named], np.zeros(len(named), np.int64), named)
        self._others = _Pairs(events.visitors[others], items[others], events.times[others], others)

    def add(self, table: pa.Table, groups: Integers) -> None:
        """Attribute events to a block of answers, which are of these groups."""
        ids, visitors = names_of(table["answer_id"]), names_of(table["visitor"])
        times = table["time"].cast(pa.int64()).to_numpy()
        for pairs, names, is_named in ((self._named, ids, True), (self._others, visitors, False)):
            codes = pairs.code(names)
            shown = self._shown(table, np.flatnonzero(codes >= 0))
            if not len(shown.rows):
                continue
            first = np.zeros(len(shown.rows), np.int64) if is_named else times[shown.rows]
            last = first if is_named else first + self._within
            events, index = pairs.find(codes[shown.rows], shown.items, first, last)
            rows = shown.rows[index]
            newest = self._newest(events, times[rows], ids[rows], shown.places[index])
            events, rows = events[newest], rows[newest]
            self.answers[events], self.visitors[events] = ids[rows], visitors[rows]
            self.times[events], self.places[events] = times[rows], shown.places[index][newest]
            self.groups[events] = groups[rows]

    def _shown(self, table: pa.Table, rows: Integers) -> _Shown:
        """The items of some answers of a block that any event has."""
        lists = table.select(["items", "places"]).take(pa.array(rows)).combine_chunks()
        items, places = (lists[name].combine_chunks() for name in ("items", "places"))
        codes = pc.fill_null(pc.index_in(pc.list_flatten(items), self._items), -1).to_numpy()
        parents = pc.list_parent_indices(items).to_numpy()
        known = np.flatnonzero(codes >= 0)
        flat = pc.list_flatten(places).to_numpy().astype(np.int64)
        return _Shown(rows[parents[known]], codes[known].astype(np.int64), flat[known])

    def _newest(self, events: Integers, times: Integers, ids: Names, places: Integers) -> Integers:
        """Of each event the newest candidate, at its first place, if it is newer than the outcome so far."""
        order = np.lexsort((-places, ids, times, events))
        last = order[np.diff(events[order], append=-1) != 0]
        of_event, newer = events[last], times[last]
        is_newer = (newer > self.times[of_event]) | (
            (newer == self.times[of_event]) & (ids[last] > self.answers[of_event])
        )
        newest: Integers = last[is_newer]
        return newest


def names_of(column: pa.ChunkedArray) -> Names:
    """Return a column of visitors or ids of answers as an array."""
    return np.asarray(column.to_pylist(), NAME) if len(column) else np.empty(0, NAME)
