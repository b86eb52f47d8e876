"""A request with its history, as it was sent, and as a version ranks it."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, islice, repeat
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.vocabulary import Id
from turret.service.answer_log.entries import ShownItems
from turret.service.errors import HistoryUnavailableError, InvalidFieldError, RequestError
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.popular.counts import Counted, Popular
from turret.service.popular.popular_now import PopularNow
from turret.service.ranking.exploration import CANDIDATES, Explored, Explorer
from turret.service.schemas.fields import Cursor, KindedIds, read_cursor
from turret.service.schemas.requests import BOOSTS_OF_AN_ANSWER, RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.contract import History
from turret.service.stores.guarded import Breaker, Stored, read_histories
from turret.service.versions.holder import LoadedModel
from turret.service.versions.record import Explore, Rule, RuleSet
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.counted_kinds import CountedKinds
from turret.tower.errors import MOST_OTHERS
from turret.tower.format.manifest import Manifest
from turret.tower.repeats import EVENTS, Bonus, Events, Rows
from turret.tower.retrieval import Ranking
from turret.tower.times import Times

NO_HISTORY = History((), ())
# A longer answer takes longer to write, or a longer history to encode, than most answers take to be found.
USUAL_ITEMS, USUAL_HISTORY = 100, 1_000
_NOTHING = np.empty(0, np.int32)


class NamedBoost(NamedTuple):
    """A boost of the request (without a rule), or of a rule: the items that it raises, and by how much."""

    rule: str | None
    condition: Filter
    by: float


@dataclass(slots=True)
class Query:
    """A request with its history, as it was sent, and as a version ranks it.

    The first fields, up to `explorer`, are as they were sent, with times in milliseconds since 1970.
    `ranking.resolving` sets the others, for one version at a time.

    Attributes:
        request: the request.
        history: the ids of the items of the events that count, oldest first.
        history_times: the time of each event; None if the times are unknown.
        request_time: the time for which the answer is requested.
        until: the latest time at which stored events count.
        degraded: the names of the parts that the answer has to do without.
        after: the end of the previous page.
        history_kinds: the kind of each event, None for an event without one; empty if no event has one.
        rules: the stored rules that apply.
        similar_to: the item whose vector takes the place of the user's.
        explore: the exploration of the route, if it may change the answer.
        explorer: draws, and counts views.
        rows: int32 [T], the known items of the events that the version reads.
        times: the times of these events, as far as the answer depends on them.
        kinds: int64 [T], the codes of their kinds (`data.kinds`), as far as the answer depends on them.
        unknown: the ids of read events that the version doesn't have.
        excluded: the rows that the answer leaves out.
        filtering: the filter of the request and of its rules.
        uses: the events that are uses of their items, where the answer depends on them or names them.
        named_boosts: the boosts of the request and of its rules.
        boosts: float32 [N + M], the number that each row's score is raised by; None without boosts.
        pins: the pinned rows by position; the ranking keeps those that the answer may have.
        unknown_pins: the ids of pins of the request that the version doesn't have.
        popular_now: the decayed counts by which a query without a vector may be answered.
        counted: the counts that `POST /v1/popular` requests; only items with events are ranked then.
        popular: the ranking by decayed counts, if the query is answered by it.
        lacks_rules: whether the version can't apply a default rule.
        only: int64, the rows that are ranked; None for all.
        vector: float32 [D], the user's, or [I, D] of several interests; None if no item of the history, or no
            part of a search, is known.
        bonus: the gains of items of the history by the version's repeat term.
        left_out: the rows of the bundle that the index leaves out.
        allowed: the rows of the bundle that the index may return; None for all.
        pool: the best `depth` items, if these are more than those of the answer.
        shown: the items of the answer.
        explored: the exploration of the answer, if there was one.
    """

    request: RecommendRequest
    history: Sequence[Id]
    history_times: Sequence[int] | None
    request_time: int
    until: int
    degraded: tuple[str, ...] = ()
    after: Cursor | None = None
    history_kinds: Sequence[str | None] = ()
    rules: Mapping[str, Rule] = field(default_factory=dict)
    similar_to: str | None = None
    explore: Explore | None = None
    explorer: Explorer | None = None

    rows: NDArray[np.int32] = field(default_factory=lambda: _NOTHING)
    times: Times | None = None
    kinds: NDArray[np.int64] | None = None
    unknown: Sequence[Id] = ()
    excluded: Rows = field(default_factory=lambda: _NOTHING)
    filtering: Filter | None = None
    uses: Events | None = None
    named_boosts: Sequence[NamedBoost] = ()
    boosts: NDArray[np.float32] | None = None
    pins: dict[int, int] = field(default_factory=dict)
    unknown_pins: Sequence[Id] = ()
    popular_now: PopularNow | None = None
    counted: Counted | None = None
    popular: Popular | None = None
    lacks_rules: bool = False
    only: NDArray[np.int64] | None = None
    vector: NDArray[np.float32] | None = None
    bonus: Bonus | None = None
    left_out: Rows = field(default_factory=lambda: _NOTHING)
    allowed: RowMask | None = None
    pool: Ranking | None = None
    shown: ShownItems | None = None
    explored: Explored | None = None

    @property
    def is_stored(self) -> bool:
        """Whether stored histories count."""
        return self.request.history is None and bool(self.request.visitors)

    @property
    def needs_uses(self) -> bool:
        """Whether the answer depends on, or names, the uses of items."""
        return self.request.among != "all" or self.request.explain

    @property
    def source(self) -> str:
        """The ranking that answers the query, once it is answered."""
        if self.vector is not None:
            return "towers"
        return "popular" if self.popular is None else "popular_now"

    @property
    def is_plain(self) -> bool:
        """Whether the answer is the beginning of the ranking, without further conditions."""
        is_ranked = self.boosts is None and not self.pins
        return is_ranked and self.request.is_plain and self.after is None

    @property
    def depth(self) -> int:
        """How many items the search of a plain query fetches: those of the answer, and those to draw from."""
        if self.explorer is None or self.explore is None or self.explore.among == "new":
            return self.request.k
        return self.request.k + CANDIDATES

    @property
    def is_large(self) -> bool:
        """Whether the answer takes longer than most answers of its version."""
        request, shown = self.request, self.after.shown if self.after else 0
        is_many = request.k + shown > USUAL_ITEMS or len(self.history) > USUAL_HISTORY
        return request.explain or not request.is_in_order or is_many


def make_query(request: RecommendRequest, stored: History, degraded: tuple[str, ...], now: int) -> Query:
    """Make a query with the history in the request, else with the `stored` history.

    A further page counts the events that were stored when the first page was requested. Events slightly ahead
    of this machine's clock count too.
    """
    after = None if request.cursor is None else read_cursor(request.cursor)
    until = after.until if after and after.until else max([now, *stored.times[-1:]])
    request_time = until if request.at is None else request.at
    if request.history is not None or not request.visitors:
        sent = request.history or ()
        sent_kinds = sent.kinds if isinstance(sent, KindedIds) else ()
        return Query(request, sent, request.history_times, request_time, until, (), after, sent_kinds)
    items, times, kinds = stored
    if after is not None:
        seen = bisect_right(times, until)
        items, times, kinds = items[:seen], times[:seen], kinds[:seen]
    return Query(request, items, times, request_time, until, degraded, after, kinds)


def add_rules(query: Query, rules: RuleSet) -> None:
    """Add the rules that apply to a query: those that its request names, else the default ones.

    Raises ConflictError for an unknown rule, and InvalidFieldError for rules that can't apply together.
    """
    request, time = query.request, query.request_time
    chosen = rules.chosen(request.rules)
    user = next(iter(request.visitors), None)
    query.rules = {name: rule for name, rule in chosen.items() if rule.applies(name, time, user)}
    cap, boosts = dict(request.cap), len(request.boost)
    for rule in query.rules.values():
        boosts += len(rule.boost)
        for name, most in rule.cap.items():
            cap[name] = min(most, cap.get(name, most))
    if boosts > BOOSTS_OF_AN_ANSWER:
        message = f"the request and its rules have {boosts} boosts; at most {BOOSTS_OF_AN_ANSWER} apply"
        raise InvalidFieldError("rules", None, f"{message} to an answer, so name fewer rules")
    if cap and query.after is not None:
        message = "a cursor can't be combined with a rule that has a cap; send one or the other"
        raise InvalidFieldError("cursor", None, message)
    query.request = request.model_copy(update={"cap": cap})


class QueryReader:
    """Makes the queries of requests: with the stored rules they name and the stored histories they need.

    A store that fails or is slow degrades the query instead of failing the request.
    """

    def __init__(
        self,
        store: Breaker,
        overlay: ItemOverlayCache,
        settings: Settings,
        rules: Callable[[], RuleSet],
        popular: PopularNow | None = None,
    ) -> None:
        self._rules = rules
        self._popular = popular
        self._store = store
        self._overlay = overlay
        self._limit = settings.stored_history_limit
        self._seconds = settings.history_timeout

    async def read(self, request: RecommendRequest, model: LoadedModel, now: int) -> Query:
        """Make the query of a request at `now`, in milliseconds since 1970."""
        if request.history is not None or not request.visitors:
            query = make_query(request, NO_HISTORY, (), now)
        else:
            query = make_query(request, *_of(request, await self._stored([request], model, now)), now)
        query.popular_now, rules = self._popular, self._rules()
        if request.rules or (request.rules is None and rules.defaults):
            add_rules(query, rules)
        return query

    async def read_all(
        self, requests: Sequence[RecommendRequest], model: LoadedModel, now: int
    ) -> list[Query]:
        """Make the queries of a batch. A RequestError has the position of its request."""
        stored = await self._stored(requests, model, now)
        queries = [make_query(request, *_of(request, stored), now) for request in requests]
        rules = self._rules()
        for position, query in enumerate(queries):
            query.popular_now = self._popular
            if query.request.rules or (query.request.rules is None and rules.defaults):
                with at_position(position):
                    add_rules(query, rules)
        return queries

    async def _stored(self, requests: Sequence[RecommendRequest], model: LoadedModel, now: int) -> Stored:
        """Read the histories that requests need; all histories are empty if the store is unavailable."""
        by_user: dict[str, list[RecommendRequest]] = {}
        for request in requests:
            for user in request.visitors if request.history is None else ():
                by_user.setdefault(user, []).append(request)
        if not by_user:
            return Stored()
        fresh = self._overlay.last_read(model.bundle)
        enough = {user: partial(_is_enough, some, model, fresh, now) for user, some in by_user.items()}
        try:
            return await read_histories(self._store, enough, self._limit, self._seconds)
        except HistoryUnavailableError:
            return Stored(truncated=frozenset(by_user))


def unknown_kinds(
    where: str, kinds: Iterable[str | None], manifest: Manifest, known: Collection[str]
) -> list[InvalidFieldError]:
    """The refusals of kinds that are not among the `known` kinds of a version, as many as an answer names.

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
    histories = [stored.histories.get(user, NO_HISTORY) for user in request.visitors]
    return joined([history for history in histories if history.items]), degraded


def joined(histories: Sequence[History]) -> History:
    """Join histories by time. An event that is in several histories, as its session moves, counts once."""
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

    The towers read as many of the newest known items as a history holds, and a repeat term reads `EVENTS`.
    The slots `new` and `again`, further pages, and items that are left out for ever need the whole history;
    items that are left out for some days need the events of these days. Duplicates are no events, and an
    event that older events may replace is not counted.
    """
    manifest = model.bundle.manifest
    items = newest.items
    for request in requests:
        kinds, at = CountedKinds(manifest, request.exclude_seen), now if request.at is None else request.at
        needs_all = request.cursor is not None or request.among != "all"
        if needs_all or (kinds.span > 0 and newest.times[0] > at - kinds.span):
            return False
        are_read, *_ = kinds.count(newest.items, newest.kinds, newest.times, at)
        settled = kinds.settled(newest.times)
        items = list(compress(newest.items[settled], are_read[settled]))
    rows, _ = fresh.known_rows(items)
    return len(rows) >= max(manifest.history_length, 0 if manifest.repeats is None else EVENTS)
