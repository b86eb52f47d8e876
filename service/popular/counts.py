"""Counts of events that decay: half of each count is left after a half-life."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from turret.service.overlay.fresh import FreshItems
from turret.service.stores.contract import Arrival, Event
from turret.tower.bundle.bundle import Bundle

# A sum is moved to a later moment before its numbers leave the range of float64, 2^1023.
_MOST_HALF_LIVES = 500.0
# Items that neither the version nor its overlay has may arrive later. So many of them are counted beside as
# many as the catalog has; beyond that the ones with the lowest counts are dropped.
SPARE_ITEMS = 100_000
# An item rises if it has at least so many events of late: a single click makes no trend.
TREND_EVENTS = 5.0


class Popular(NamedTuple):
    """The ranking of a catalog by decayed counts: `rows` int64 [P], best first, with `sums` float64 [P].

    Rows from N on are fresh items. `total` is the sum over all items. A count at a time in ms since 1970 is
    its sum x 2^(-(time - since) / half_life). A trend has shares as `sums`, which hold at all times, and the
    sums of its items as `recent` float64 [P]. `tag` is that of the ranking in cursors.
    """

    rows: NDArray[np.int64]
    sums: NDArray[np.float64]
    total: float
    since: float
    half_life: float
    tag: str
    recent: NDArray[np.float64] | None = None

    def at(self, time: float) -> float:
        """The factor of `sums` that makes them counts, or shares, at a time."""
        return 1.0 if self.recent is not None else self._decay(time)

    def are_enough(self, time: float) -> NDArray[np.bool_]:
        """The mask [P] of the items that are ranked at a time: a trend has `TREND_EVENTS` at least."""
        if self.recent is None:
            return np.ones(len(self.rows), dtype=np.bool_)
        return self.recent * self._decay(time) >= TREND_EVENTS

    def _decay(self, time: float) -> float:
        """The factor of a sum that makes it a count at a time, at most 2^100."""
        return float(2.0 ** min((self.since - time) / self.half_life, 100.0))


class Counted(NamedTuple):
    """A ranking: by the events of some kinds, with the half-life of a name, or by their trend."""

    half_life: str
    kinds: tuple[str | None, ...]
    trend: bool = False

    @property
    def tag(self) -> str:
        """Eight hexadecimal digits, by which a cursor knows its ranking."""
        return f"{crc32(repr(tuple(self)).encode()):08x}"


class _Ranked(NamedTuple):
    generation: int
    bundle: Bundle
    fresh: FreshItems


class DecayedCounts:
    """Sums of 2^((time - since) / half-life) over the events of each item, by kind: 8 bytes each.

    An event that is a half-life younger counts twice as much, so all counts decay without a write.
    `half_lives` are in milliseconds, by name. Threads may rank while events are added: a ranking may have a
    part of them.
    """

    def __init__(self, half_lives: Mapping[str, float], now: int) -> None:
        self.half_lives = dict(half_lives)
        self._now = now
        self._generation = 0
        self._since = {name: float(now) for name in half_lives}
        self._slots: dict[str, int] = {}  # by item
        self._sums: dict[str | None, NDArray[np.float64]] = {}  # [half-lives, slots] by kind
        self._rows: WeakKeyDictionary[Bundle, NDArray[np.int64]] = (
            WeakKeyDictionary()
        )  # of each slot, -1: none
        self._ranked: tuple[_Ranked, dict[Counted, Popular]] | None = None

    def __len__(self) -> int:
        """The number of items that have been counted."""
        return len(self._slots)

    def add(
        self,
        events: Sequence[Event | Arrival],
        kinds: Mapping[str | None, str | None],
        most: int,
        now: int,
    ) -> None:
        """Count events under the kinds that `kinds` has for theirs, else as events without a kind.

        Beyond `most` items, the items with the lowest counts are dropped.
        """
        self._now = now
        self._move()
        slots = np.array(
            [self._slots.setdefault(str(event.item), len(self._slots)) for event in events], dtype=np.int64
        )
        # A log that was loaded may have times in the future, whose weights no number holds.
        times = np.minimum(np.array([event.time for event in events], dtype=np.float64), now)
        of_kinds = [kinds.get(event.kind) for event in events]
        for kind in set(of_kinds):
            sums = self._room(kind)
            chosen = np.array([other == kind for other in of_kinds])
            for place, (name, half_life) in enumerate(self.half_lives.items()):
                weights = np.exp2((times[chosen] - self._since[name]) / half_life)
                np.add.at(sums[place], slots[chosen], weights)
        if len(self._slots) > most:
            self._prune(most)
        self._generation += 1

    def _move(self) -> None:
        """Move sums that are far from their moment to the present one.

        After a clock that was ahead, they stay as they are: their events are as those of the future.
        """
        for place, (name, half_life) in enumerate(self.half_lives.items()):
            moved = (self._now - self._since[name]) / half_life
            if abs(moved) > _MOST_HALF_LIVES:
                for sums in self._sums.values():
                    sums[place] *= 2.0 ** -max(moved, 0.0)
                self._since[name] = float(self._now)

    def _room(self, kind: str | None) -> NDArray[np.float64]:
        """The sums of a kind, with room for all slots."""
        sums = self._sums.get(kind)
        if sums is None or sums.shape[1] < len(self._slots):
            grown = np.zeros((len(self.half_lives), max(1024, 2 * len(self._slots))))
            if sums is not None:
                grown[:, : sums.shape[1]] = sums
            self._sums[kind] = sums = grown
        return sums

    def _prune(self, most: int) -> None:
        """Keep the three quarters of `most` items with the highest counts of the longest half-life."""
        longest = max(range(len(self.half_lives)), key=[*self.half_lives.values()].__getitem__)
        items = [*self._slots]
        total = np.zeros(len(items))
        for sums in self._sums.values():
            width = min(len(items), sums.shape[1])
            total[:width] += sums[longest, :width]
        kept = np.sort(np.argsort(-total, kind="stable")[: most * 3 // 4])
        self._slots = {items[slot]: place for place, slot in enumerate(kept.tolist())}
        self._rows.clear()
        for kind, sums in self._sums.items():
            padded = np.zeros((sums.shape[0], len(items)))
            padded[:, : min(len(items), sums.shape[1])] = sums[:, : len(items)]
            self._sums[kind] = padded[:, kept]

    def ranked(self, counted: Counted, bundle: Bundle, fresh: FreshItems) -> Popular:
        """The ranking of a catalog, computed once until the next `refresh`.

        A trend is the ranking by the share of an item among the events of the half-life, over that among
        those of the longest half-life; `Popular.are_enough` says which of its items have enough events.
        """
        ranked = self._ranked
        if ranked is None or ranked[0].bundle is not bundle or ranked[0].fresh is not fresh:
            self._ranked = ranked = _Ranked(self._generation, bundle, fresh), {}
        if counted not in ranked[1]:
            ranked[1][counted] = self._rank(counted, bundle, fresh)
        return ranked[1][counted]

    def refresh(self) -> None:
        """Compute the rankings anew that were read since the last call, if events were added meanwhile."""
        ranked = self._ranked
        if ranked is not None and ranked[0].generation != self._generation:
            of = ranked[0]._replace(generation=self._generation)
            self._ranked = of, {each: self._rank(each, of.bundle, of.fresh) for each in [*ranked[1]]}

    def _rank(self, counted: Counted, bundle: Bundle, fresh: FreshItems) -> Popular:
        name, kinds, trend = counted
        rows = self._rows_of(bundle, fresh)
        recent = sums = self._total(name, kinds, len(rows))
        total = float(sums.sum())
        places = np.flatnonzero((rows >= 0) & (sums > 0))
        if trend:
            longest = max(self.half_lives, key=self.half_lives.__getitem__)
            long = self._total(longest, kinds, len(rows))
            shares = sums / (total or 1.0), long / (float(long.sum()) or 1.0)
            sums = np.divide(*shares, out=np.zeros_like(sums), where=shares[1] > 0)
        order = places[np.lexsort((rows[places], -sums[places]))]
        half_life, since = self.half_lives[name], self._since[name]
        popular = Popular(rows[order], sums[order], total, since, half_life, counted.tag)
        return popular._replace(recent=recent[order]) if trend else popular

    def _total(self, name: str, kinds: Sequence[str | None], count: int) -> NDArray[np.float64]:
        total, place = np.zeros(count), [*self.half_lives].index(name)
        for kind in kinds:
            if (sums := self._sums.get(kind)) is not None:
                width = min(count, sums.shape[1])
                total[:width] += sums[place, :width]
        return total

    def _rows_of(self, bundle: Bundle, fresh: FreshItems) -> NDArray[np.int64]:
        """The row of each slot in a bundle and its overlay, -1 for an item that neither has."""
        known = self._rows.get(bundle, np.empty(0, np.int64))
        if len(known) < len(self._slots):
            new = [bundle.vocabulary.row(item) for item in [*self._slots][len(known) :]]
            known = np.append(known, [-1 if row is None else row for row in new]).astype(np.int64)
            self._rows[bundle] = known
        if not fresh.places:
            return known
        rows = known.copy()
        for item, place in fresh.places.items():
            if (slot := self._slots.get(item)) is not None and rows[slot] < 0:
                rows[slot] = fresh.first_row + place
        return rows
