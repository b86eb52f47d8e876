"""Follows the events that the store receives, and ranks the items that are popular now."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from turret.data.kinds import KindTable
from turret.service.errors import ConflictError, HistoryUnavailableError, InvalidFieldError, NotReadyError
from turret.service.overlay.fresh import FreshItems
from turret.service.popular.counts import SPARE_ITEMS, Counted, DecayedCounts, Popular
from turret.service.stores.contract import ARRIVALS_PAGE, Arrival, Event, event_digest, now_ms
from turret.service.stores.guarded import Breaker
from turret.service.versions.holder import ModelHolder
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.manifest import Manifest

# Every process reads the new events so often, so that all of them count an event within two seconds.
POLL_SECONDS = 0.5
# After so many half-lives an event counts less than a millionth.
_HALF_LIVES = 20
# With fewer events, decayed ones, the most popular items are a matter of chance.
ENOUGH = 100.0
_LAST = 2**62  # ms since 1970
_PORTION = 1_000  # events that are counted in one turn of the event loop: a millisecond
Kinds = Mapping[str | None, str | None]  # the kinds under which events count, by their own
_log = logging.getLogger("turret.popular")


class PopularNow:
    """The decayed counts of a worker: of the stored events at its start, and of each later one once.

    `half_lives` are in milliseconds, by name. `counts` are None until the stored events are read, and for a
    store that does not list its arrivals.
    """

    def __init__(
        self,
        store: Breaker,
        holder: ModelHolder,
        half_lives: Mapping[str, float],
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.half_lives = half_lives
        self._shortest_first = sorted(half_lives, key=half_lives.__getitem__)
        self.counts: DecayedCounts | None = None
        self._store = store
        self._holder = holder
        self._clock = clock
        self._position = ""
        self._kinds: Kinds = {}

    async def follow(self) -> None:
        """Count the events of the store, the stored ones and all that come, until the service ends."""
        if not self.half_lives or not self._store.lists_arrivals:
            return
        while True:
            try:
                await self.advance()
            except HistoryUnavailableError as error:
                _log.debug("popular now waits for the store: %s", error)
            await asyncio.sleep(POLL_SECONDS)

    async def advance(self) -> None:
        """Count the events that have come since the last call; the first call counts all stored ones.

        Raises HistoryUnavailableError while the store is unavailable.
        """
        if self.counts is None or self._kinds_of_live() != self._kinds:
            await self._load()
            return
        counts, is_new = self.counts, False
        while True:
            arrivals = await self._store.arrivals(self._position)
            if arrivals is None:  # the store is another one, or has dropped events that were not read
                await self._load()
                return
            await self._add(counts, arrivals.events)
            self._position, is_new = arrivals.position, is_new or bool(arrivals.events)
            if len(arrivals.events) < ARRIVALS_PAGE:
                break
        if is_new:
            await asyncio.to_thread(counts.refresh)

    async def _load(self) -> None:
        """Count all stored events that are young enough.

        Events that arrive during the scan may be in it: they are read from the arrivals too, and count there.
        """
        now = self._clock()
        counts, self._kinds = DecayedCounts(self.half_lives, now), self._kinds_of_live()
        start = await self._store.arrivals(None)
        assert start is not None
        position, later = start.position, dict[str, Arrival]()
        first = now - round(_HALF_LIVES * max(self.half_lives.values()))
        async for portion in self._store.scan(first, _LAST):
            # An event is listed as soon as it can be in a portion.
            while True:
                arrivals = await self._store.arrivals(position)
                if arrivals is None:
                    raise HistoryUnavailableError("the store has dropped events that were not counted yet")
                position = arrivals.position
                later |= {event.digest: event for event in arrivals.events}
                if len(arrivals.events) < ARRIVALS_PAGE:
                    break
            if later:
                portion = [each for each in portion if event_digest(each.user, each.event_id) not in later]
            await self._add(counts, portion)
        await self._add(counts, [*later.values()])
        self.counts, self._position = counts, position

    async def _add(self, counts: DecayedCounts, events: Sequence[Event | Arrival]) -> None:
        most = SPARE_ITEMS + (2 * len(self._holder.live.bundle.vocabulary) if self._holder.version else 0)
        for start in range(0, len(events), _PORTION):
            counts.add(events[start : start + _PORTION], self._kinds, most, self._clock())
            await asyncio.sleep(0)

    def _kinds_of_live(self) -> Kinds:
        """The kinds of the live version by themselves, and that of events without one."""
        if not self._holder.version:
            return {}
        manifest = self._holder.live.bundle.manifest
        return {None: manifest.default_kind, **{name: name for name in manifest.kinds}}

    def wanted(
        self, half_life: str | None, kinds: Sequence[str] | None, trend: bool, version: Manifest
    ) -> Counted:
        """The counts that a request wants: by default of the shortest half-life, and of the kinds of targets.

        Raises InvalidFieldError for a name that does not exist and for a trend of the longest half-life,
        ConflictError where nothing is counted, and NotReadyError until the stored events are counted.
        """
        if not self.half_lives or not self._store.lists_arrivals:
            reason = (
                "TURRET_POPULAR names no half-life"
                if self._store.lists_arrivals
                else "the store lists no arrivals"
            )
            raise ConflictError("half_life", half_life, f"no events are counted here: {reason}")
        if self.counts is None:
            raise NotReadyError("half_life", half_life, "the stored events are not counted yet; retry", 1.0)
        names = self._shortest_first
        if half_life is not None and half_life not in names:
            message = f"there is no such half-life; there are: {', '.join(names)}"
            raise InvalidFieldError("half_life", half_life, message)
        if trend and (half_life or names[0]) == names[-1]:
            shorter = ", ".join(names[:-1]) or "none; TURRET_POPULAR names them"
            message = (
                f"a trend compares a half-life with the longest one, {names[-1]}; shorter are: {shorter}"
            )
            raise InvalidFieldError("half_life", half_life or names[0], message)
        known = [name for name, kind in version.kinds.items() if kind.role != "ignored"]
        for place, kind in enumerate(kinds or ()):
            if kind not in known:
                message = (
                    f"version {version.version} has no such kind; there are: {', '.join(known) or 'none'}"
                )
                raise InvalidFieldError(f"kinds.{place}", kind, message)
        chosen = tuple(dict.fromkeys(kinds or counted_kinds(version.kinds)))
        return Counted(half_life or names[0], chosen, trend)

    def fallback(
        self, bundle: Bundle, fresh: FreshItems, time: float, tag: str | None = None
    ) -> Popular | None:
        """The ranking for people without a known history: of the shortest half-life with enough events.

        None where no half-life has them. A further page has the ranking of the first one, whose `tag` its
        cursor has, "" for counts of the training.
        """
        counts = self.counts
        if counts is None or not len(counts):
            return None
        for counted in self.fallbacks(bundle.manifest):
            popular = counts.ranked(counted, bundle, fresh)
            if popular.total * popular.at(time) >= ENOUGH if tag is None else counted.tag == tag:
                return popular
        return None

    def fallbacks(self, version: Manifest) -> list[Counted]:
        """The rankings that people without a known history may get, in the order of their half-lives."""
        kinds = counted_kinds(version.kinds)
        return [Counted(name, kinds) for name in self._shortest_first]


def counted_kinds(kinds: KindTable) -> tuple[str | None, ...]:
    """The kinds that count by default: those of targets, or all events where kinds have no meaning."""
    return tuple(name for name, kind in kinds.items() if kind.role == "target") or (None,)
