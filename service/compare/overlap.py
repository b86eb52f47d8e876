"""The overlap of two versions' answers, over stored users or over recorded queries."""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from turret.service.compare.sides import Id, Side, overlap_between
from turret.service.errors import ConflictError, HistoryUnavailableError, RequestError
from turret.service.ranking.query import NO_HISTORY, Query, make_query
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import Event, History, HistoryStore
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.golden import GoldenQuery, load_golden
from turret.tower.errors import BundleError, EncodingError

SCAN_SECONDS, RANKING_SECONDS = 5.0, 20.0
_LATEST = 2**62  # ms since 1970: later than any stored event
_TENTHS = 10


async def stored_queries(
    store: HistoryStore, users: int, k: int, now: int, seconds: float = SCAN_SECONDS
) -> list[Query]:
    """Make the queries at `now`, in milliseconds since 1970, of the first `users` of a scan of the store.

    The scan lasts at most `seconds`; users that were read before, or before the store failed, remain.
    """
    found: dict[str, deque[Event]] = {}
    with suppress(TimeoutError, HistoryUnavailableError):
        async with asyncio.timeout(seconds):
            async for events in store.scan(0, _LATEST):
                for event in events:
                    found.setdefault(event.user, deque(maxlen=HISTORY_LIMIT)).append(event)
                if len(found) > users:  # all but the latest user are read to their ends
                    break
    queries = []
    for user in list(found)[:users]:
        history = History([event.item for event in found[user]], [event.time for event in found[user]])
        queries.append(make_query(RecommendRequest.model_construct(user_id=user, k=k), history, (), now))
    return queries


def recorded_queries(bundle: Bundle, k: int, now: int) -> list[Query]:
    """Make the queries recorded with a version, with their features and times. Raises ConflictError."""
    try:
        recorded = load_golden(bundle.folder / "golden.json").queries
    except BundleError as error:
        message = f"no user is stored, and the recorded queries can't be read: {error}; store events first"
        raise ConflictError("version", bundle.manifest.version, message) from None
    return [make_query(_request(query, k), NO_HISTORY, (), now) for query in recorded]


async def measure_overlap(
    live: Side, other: Side, queries: Sequence[Query], thread: Executor, seconds: float = RANKING_SECONDS
) -> dict[str, Any]:
    """Answer queries from both versions for at most `seconds`; see `OverlapAnswer`.

    Each query is ranked by a call of its own in `thread`, so that other calls run in between.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    overlaps: list[float] = []
    changed_first = 0
    for query in queries:
        live_ids, other_ids = await loop.run_in_executor(thread, _both, live, other, query)
        overlaps.append(overlap_between(live_ids, other_ids))
        changed_first += list(map(str, live_ids[:1])) != list(map(str, other_ids[:1]))
        if loop.time() > ends:
            break
    count = len(overlaps)
    return {
        "histories": count,
        "overlap_mean": sum(overlaps) / count,
        "overlap_histogram": _histogram(overlaps),
        "changed_first": changed_first / count,
    }


def _request(query: GoldenQuery, k: int) -> RecommendRequest:
    times = None if query.times is None else [round(time * 1000) for time in query.times.events.tolist()]
    return RecommendRequest.model_construct(
        history=list(query.history[-HISTORY_LIMIT:]),
        history_times=times and times[-HISTORY_LIMIT:],
        at=None if query.at is None else round(query.at * 1000),
        features=query.features,
        k=k,
    )


def _both(live: Side, other: Side, query: Query) -> tuple[list[Id], list[Id]]:
    """The ids of both answers; a version that can't encode the query has none."""
    return _ids(live, query, other), _ids(other, query, live)


def _ids(side: Side, query: Query, other: Side) -> list[Id]:
    try:
        return side.answer(query, other)[1]
    except (RequestError, EncodingError):
        return []


def _histogram(overlaps: Sequence[float]) -> list[int]:
    """Count by tenth; 1 belongs to the last one."""
    counts = [0] * _TENTHS
    for overlap in overlaps:
        counts[min(int(overlap * _TENTHS + 1e-9), _TENTHS - 1)] += 1
    return counts
