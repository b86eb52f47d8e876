"""Requests with the histories that count for them."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import compress, islice, repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.service.errors import HistoryUnavailableError, InvalidFieldError, RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.schemas.fields import Cursor, Id, KindedIds, read_cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.contract import History
from turret.service.stores.guarded import Breaker, Stored, read_histories
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import Rule, RuleSet
from turret.tower.catalog.filters import Filter
from turret.tower.counted_kinds import CountedKinds, refusal_of
from turret.tower.errors import MOST_OTHERS
from turret.tower.format.manifest import Manifest
from turret.tower.repeats import EVENTS, Bonus, Events, Rows
from turret.tower.times import Times

NO_HISTORY = History((), ())


class Query(NamedTuple):
    """A request with its history. Times are in milliseconds since 1970."""

    request: RecommendRequest
    history: Sequence[int | str]  # item ids, oldest first
    times: Sequence[int] | None  # when each item of the history was used, if known
    request_time: int  # for which the answer is requested
    until: int  # the latest time at which stored events count
    degraded: tuple[str, ...] = ()  # names of the parts that the answer has to do without
    after: Cursor | None = None  # the end of the previous page
    similar_to: str | None = None  # the item whose vector takes the place of the user's
    rules: Mapping[str, Rule] = {}  # those that the request names
    kinds: Sequence[str | None] = ()  # of the events of the history; none where no event has one

    @property
    def is_stored(self) -> bool:
        """Whether stored histories count."""
        return self.request.history is None and bool(self.request.visitors)

    @property
    def needs_uses(self) -> bool:
        """Whether the answer depends on, or names, the uses of items."""
        return self.request.among != "all" or self.request.explain

    @property
    def is_plain(self) -> bool:
        """Whether the answer is the beginning of the ranking, without further conditions."""
        return self.request.is_plain and self.after is None


@dataclass
class ResolvedQuery:
    """A query with its ids resolved to rows, and the rows that its answer leaves out.

    `rows`, `times` and `kinds` are those of the events that the version reads. `vector` [D] is the user's;
    None if no item is known, or if the index can't be searched. `bonus` is what items of the history gain by
    the version's repeat term. `uses` are the events that are uses of their items, where the request needs
    them; `only` are the rows that are ranked, None for all.
    """

    query: Query
    rows: NDArray[np.int32]
    times: Times | None
    kinds: NDArray[np.int64] | None
    unknown: list[int | str]
    excluded: Rows
    filtering: Filter | None
    vector: NDArray[np.float32] | None = None
    bonus: Bonus | None = None
    uses: Events | None = None
    only: NDArray[np.int64] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the answer is the beginning of the towers' ranking of all items but the excluded ones."""
        is_whole = self.filtering is None and self.only is None
        return self.vector is not None and is_whole and self.query.is_plain


def make_query(request: RecommendRequest, stored: History, degraded: tuple[str, ...], now: int) -> Query:
    """Choose the history: the one in the request, else the `stored` one.

    A further page counts the events that were stored when the first page was requested. Events slightly ahead
    of this machine's clock count too.
    """
    after = None if request.cursor is None else read_cursor(request.cursor)
    until = after.until if after and after.until else max([now, *stored.times[-1:]])
    request_time = until if request.at is None else request.at
    if request.history is not None or not request.visitors:
        given, when = request.history or (), request.history_times
        own = given.kinds if isinstance(given, KindedIds) else ()
        return Query(request, given, when, request_time, until, (), after, kinds=own)
    items, times, kinds = stored
    if after is not None:
        seen = bisect_right(times, until)
        items, times, kinds = items[:seen], times[:seen], kinds[:seen]
    return Query(request, items, times, request_time, until, degraded, after, kinds=kinds)


class CountedHistory(NamedTuple):
    """The events of a query that the user tower of a version reads, and the items that its answer leaves out.

    `kinds` [T] are codes of `data.kinds`, -1 for no known kind, None for a version without kinds. `left_out`
    are ids, None for all items that are read.
    """

    items: Sequence[Id]
    times: Sequence[int] | None
    kinds: NDArray[np.int64] | None = None
    left_out: Sequence[Id] | None = None


def count_history(query: Query, manifest: Manifest) -> CountedHistory:
    """Choose the events that count for a version, merged as the data that it was trained on."""
    history, seen = query.history, query.request.seen(manifest.exclude_seen)
    if not manifest.kinds and not isinstance(seen, tuple) and manifest.duplicates == "keep":
        return CountedHistory(history, query.times, None, () if seen is False else None)
    kinds = CountedKinds(manifest, query.request.exclude_seen)
    are_read, are_left_out, codes = kinds.count(history, query.kinds, query.times, query.request_time)
    times = None if query.times is None else list(compress(query.times, are_read))
    left_out = list(compress(history, are_left_out))
    return CountedHistory(list(compress(history, are_read)), times, codes[are_read], left_out)


def with_rules(query: Query, rules: RuleSet) -> Query:
    """The query with the rules that it names. Raises ConflictError for an unknown one."""
    request = query.request
    if not request.rules:
        return query
    chosen, cap = rules.chosen(request.rules), dict(request.cap)
    for rule in chosen.values():
        for name, most in rule.cap.items():
            cap[name] = min(most, cap.get(name, most))
    if cap and query.after is not None:
        message = "a cursor can't be combined with a rule that has a cap; send one or the other"
        raise InvalidFieldError("cursor", None, message)
    return query._replace(request=request.model_copy(update={"cap": cap}), rules=chosen)


class QueryReader:
    """Makes the queries of requests: with the stored rules they name and the stored histories they need.

    A store that fails or is slow degrades the query instead of failing the request.
    """

    def __init__(
        self, store: Breaker, overlay: ItemOverlayCache, settings: Settings, rules: Callable[[], RuleSet]
    ) -> None:
        self._rules = rules
        self._store = store
        self._overlay = overlay
        self._limit = settings.stored_history_limit
        self._seconds = settings.history_timeout

    async def read(self, request: RecommendRequest, model: LoadedModel, now: int) -> Query:
        """Make the query of a request at `now`, in milliseconds since 1970."""
        if request.history is not None or not request.visitors:
            return with_rules(make_query(request, NO_HISTORY, (), now), self._rules())
        stored = await self._stored([request], model, now)
        return with_rules(make_query(request, *_of(request, stored), now), self._rules())

    async def read_all(
        self, requests: Sequence[RecommendRequest], model: LoadedModel, now: int
    ) -> list[Query]:
        """Make the queries of a batch. A RequestError has the position of its request."""
        stored = await self._stored(requests, model, now)
        queries = []
        for position, request in enumerate(requests):
            with at_position(position):
                queries.append(with_rules(make_query(request, *_of(request, stored), now), self._rules()))
        return queries

    async def _stored(self, requests: Sequence[RecommendRequest], model: LoadedModel, now: int) -> Stored:
        """Read the histories that requests need; without any event if the store is unavailable."""
        by_user: dict[str, list[RecommendRequest]] = {}
        for request in requests:
            for user in request.visitors if request.history is None else ():
                by_user.setdefault(user, []).append(request)
        if not by_user:
            return Stored()
        fresh = self._overlay.last_read(model.bundle)
        enough = {user: partial(_is_enough, own, model, fresh, now) for user, own in by_user.items()}
        try:
            return await read_histories(self._store, enough, self._limit, self._seconds)
        except HistoryUnavailableError:
            return Stored(truncated=frozenset(by_user))


def unknown_kinds(
    where: str, kinds: Iterable[str | None], manifest: Manifest, known: Collection[str]
) -> list[InvalidFieldError]:
    """The refusals of kinds that are none of the `known` ones of a version, as many as an answer names.

    `where` has {} for the position of a kind, such as "history.{}.kind".
    """
    unknown = ((place, kind) for place, kind in enumerate(kinds) if kind is not None and kind not in known)
    return [
        InvalidFieldError(
            where.format(place),
            kind,
            f"version {manifest.version} has no such kind; send one of {', '.join(known)}",
        )
        for place, kind in islice(unknown, MOST_OTHERS + 1)
    ]


def check_among(query: Query, manifest: Manifest) -> None:
    """Raise InvalidFieldError for an `among` that this version never answers, or is not its cursor's."""
    among, after = query.request.among, query.after
    if after is not None and after.among != among:
        message = f"this cursor is of an answer with among = {after.among}; send it with the same among"
        raise InvalidFieldError("cursor", after.text(), message)
    if refusal := refusal_of(among, manifest, query.request.exclude_seen):
        raise InvalidFieldError("among", among, refusal)


def wrong_kinds(request: RecommendRequest, manifest: Manifest) -> list[InvalidFieldError]:
    """The refusals of kinds in a request that a version with kinds doesn't have, or ignores."""
    wrong: list[InvalidFieldError] = []
    if isinstance(request.history, KindedIds):
        wrong += unknown_kinds("history.{}.kind", request.history.kinds, manifest, manifest.kinds)
    if isinstance(request.exclude_seen, tuple):
        known = [name for name, kind in manifest.kinds.items() if kind.role != "ignored"]
        wrong += unknown_kinds("exclude_seen.{}", request.exclude_seen, manifest, known)
    return wrong


@contextmanager
def at_position(position: int) -> Iterator[None]:
    """Give a RequestError the position of its request in the batch."""
    try:
        yield
    except RequestError as error:
        error.position = position
        raise


def _of(request: RecommendRequest, stored: Stored) -> tuple[History, tuple[str, ...]]:
    """The stored history of a request's user and session, and the parts that are missing from it."""
    degraded = ("history",) if not stored.truncated.isdisjoint(request.visitors) else ()
    found = [stored.histories.get(user, NO_HISTORY) for user in request.visitors]
    return joined([one for one in found if one.items]), degraded


def joined(histories: Sequence[History]) -> History:
    """Join histories by time. An event that is in several of them, as its session is moving, counts once."""
    if len(histories) < 2:
        return histories[0] if histories else NO_HISTORY
    rows: list[tuple[Id, int, str | None]] = []
    for items, times, kinds in histories:
        known = set(rows)
        rows += [row for row in zip(items, times, kinds or repeat(None), strict=False) if row not in known]
    return History.of(sorted(rows, key=itemgetter(1)))


def _is_enough(
    requests: Sequence[RecommendRequest], model: LoadedModel, fresh: FreshItems, now: int, newest: History
) -> bool:
    """Whether requests of a user need no older events than `newest`.

    The towers read as many of the newest known items as a history holds, and a repeat term `EVENTS`. Items
    that are left out for ever, `new` or `again`, and further pages, need the whole history; items that are
    left out for some days, the events of these. Duplicates are no events, and one whose older events may
    replace it is not counted.
    """
    manifest = model.bundle.manifest
    items = newest.items
    for request in requests:
        kinds, asked = CountedKinds(manifest, request.exclude_seen), now if request.at is None else request.at
        needs_all = request.cursor is not None or request.among != "all"
        if needs_all or (kinds.span > 0 and newest.times[0] > asked - kinds.span):
            return False
        are_read, *_ = kinds.count(newest.items, newest.kinds, newest.times, asked)
        settled = kinds.settled(newest.times)
        items = list(compress(newest.items[settled], are_read[settled]))
    rows, _ = fresh.known_rows(items)
    return len(rows) >= max(manifest.history_length, 0 if manifest.repeats is None else EVENTS)
