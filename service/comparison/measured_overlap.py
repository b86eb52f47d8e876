"""The overlap of both versions' answers over a sample of histories."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from turret.service.comparison.side import Id, Side, overlap_between
from turret.service.errors import ConflictError, RequestError
from turret.service.ranking.query import Query
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import History
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import GoldenQuery, load_golden
from turret.tower.errors import BundleError, EncodingError

MOST_SECONDS = 20.0
_TENTHS = 10


def measure_overlap(
    live: Side,
    other: Side,
    queries: Iterable[Query],
    rest: Callable[[], None],
    seconds: float = MOST_SECONDS,
) -> dict[str, Any]:
    """Answer queries from both versions for at most `seconds`; see `OverlapAnswer`.

    `rest` is called after each. A version that can't encode a query has no items for it.
    """
    overlaps: list[float] = []
    changed_first = 0
    ends = time.monotonic() + seconds
    for query in queries:
        live_ids, other_ids = _ids(live, query, other), _ids(other, query, live)
        overlaps.append(overlap_between(live_ids, other_ids))
        changed_first += list(map(str, live_ids[:1])) != list(map(str, other_ids[:1]))
        if time.monotonic() > ends:
            break
        rest()
    count = len(overlaps)
    return {
        "histories": count,
        "overlap_mean": sum(overlaps) / count,
        "overlap_histogram": _histogram(overlaps),
        "changed_first": changed_first / count,
    }


def queries_of_users(histories: Sequence[History], k: int, now: int) -> list[Query]:
    """The queries for the next items of users at `now`, in milliseconds since 1970."""
    return [_query(history, {}, k, now) for history in histories]


def queries_of_golden(bundle: Bundle, k: int, now: int) -> list[Query]:
    """The recorded queries of a version, with their features and times. Raises ConflictError."""
    try:
        recorded = load_golden(bundle.folder / "golden.json").queries
    except BundleError as error:
        message = f"no user is stored, and the recorded queries can't be read: {error}; store events first"
        raise ConflictError("version", bundle.manifest.version, message) from None
    return [_recorded(query, k, now) for query in recorded]


def _recorded(query: GoldenQuery, k: int, now: int) -> Query:
    items = query.history[-HISTORY_LIMIT:]
    times = None if query.times is None else [round(time * 1000) for time in query.times.events.tolist()]
    request_time = now if query.at is None else round(query.at * 1000)
    request = RecommendRequest.model_construct(history=list(items), features=query.features, k=k)
    return Query(request, items, times and times[-HISTORY_LIMIT:], request_time, now)


def _query(history: History, features: dict[str, Any], k: int, now: int) -> Query:
    until = max([now, *history.times[-1:]])
    request = RecommendRequest.model_construct(history=list(history.items), features=features, k=k)
    return Query(request, history.items, history.times, until, until)


def _ids(side: Side, query: Query, other: Side) -> list[Id]:
    try:
        return side.answer(query, other.feature_names)[1]
    except (RequestError, EncodingError):
        return []


def _histogram(overlaps: Sequence[float]) -> list[int]:
    """Count by tenth; 1 belongs to the last one."""
    counts = [0] * _TENTHS
    for overlap in overlaps:
        counts[min(int(overlap * _TENTHS + 1e-9), _TENTHS - 1)] += 1
    return counts
