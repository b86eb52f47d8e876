"""A version beside the live one: both answers to a request, their overlap, and what the calls answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_time import run
from turret.service.errors import (
    ConflictError,
    HistoryUnavailableError,
)
from turret.service.overlay.fresh import empty_overlay
from turret.service.ranking.comparison import (
    Side,
    measure_overlap,
    recorded_queries,
    stored_queries,
)
from turret.service.ranking.query import Query, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.stores.contract import Event, History
from turret.service.versions.gate import overlap_between
from turret.service.versions.loaded_model import open_live
from turret.tower.bundle.publish import BundleContents, publish

Make = Callable[..., BundleContents]
MakeSide = Callable[..., Side]


# --- Two sides


@pytest.fixture
def make_side(tmp_path: Path, make_contents: Make) -> MakeSide:
    """Publish a version and open it."""

    def make(version: str, **contents: object) -> Side:
        publish(tmp_path / "published", make_contents(version, **contents))
        model = open_live(tmp_path / "published", version)
        return Side(model, empty_overlay(model.bundle))

    return make


@pytest.mark.parametrize(
    ("live", "other", "overlap"),
    [
        ([1, 2, 3, 4], [4, 3, 9, 8], 0.5),
        ([1], [1, 2, 3, 4], 0.25),
        ([], [1], 0.0),
        ([], [], 1.0),
        ([7], ["7"], 1.0),
    ],
)
def test_the_overlap_is_the_same_from_both_sides(live: list[Any], other: list[Any], overlap: float) -> None:
    assert overlap_between(live, other) == overlap_between(other, live) == overlap


HISTORIES = [History((100 + user, 101 + user), (1000, 2000)) for user in range(40)]


def queries_of(histories: Sequence[History], k: int) -> list[Query]:
    request = RecommendRequest(user_id="u", k=k)
    return [make_query(request, history, (), 5000) for history in histories]


def measured(live: Side, other: Side, queries: Sequence[Query], seconds: float = 20.0) -> dict[str, Any]:
    with ThreadPoolExecutor(1) as thread:
        return run(measure_overlap(live, other, queries, thread, seconds))


def test_the_histogram_has_each_mean_in_its_tenth(make_side: MakeSide) -> None:
    """And a measurement that takes too long has what was measured until then."""
    live, other = make_side("v1"), make_side("v2", seed=1)
    for k in (1, 3, 7, 10):
        found = measured(live, other, queries_of(HISTORIES, k))
        counts = found["overlap_histogram"]
        least = sum(tenth * count for tenth, count in enumerate(counts)) / 10 / 40
        assert least <= found["overlap_mean"] + 1e-9 <= least + 0.1 + 2e-9
    assert measured(live, other, queries_of(HISTORIES, 10), seconds=-1)["histories"] == 1


def test_the_recorded_queries_are_those_of_the_bundle(make_side: MakeSide) -> None:
    side = make_side("v1", times=True)
    queries = recorded_queries(side.model.bundle, 5, 5000)
    assert queries
    assert all(query.request.k == 5 and query.history for query in queries)
    assert measured(side, side, queries)["overlap_mean"] == 1.0
    (side.model.bundle.folder / "golden.json").unlink()
    with pytest.raises(ConflictError, match="store events first"):
        recorded_queries(side.model.bundle, 5, 5000)


# --- Stored users


def event(user: int, item: int, time: int = 0) -> Event:
    return Event(f"{user}-{item}", str(user), item, time)


def stored(store: object, users: int, seconds: float = 5.0) -> list[list[int | str]]:
    """The histories of the queries."""
    queries = run(stored_queries(store, users, 10, 5000, seconds))  # type: ignore[arg-type]
    return [list(query.history) for query in queries]


class Portions:
    """A store whose scan gives each user's three events in two portions, then ends, hangs or fails."""

    def __init__(self, users: int, then: str = "") -> None:
        self.users = users
        self.then = then
        self.portions = 0

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        yield [event(0, 1)]
        for user in range(self.users):
            self.portions += 1
            yield [event(user, 2), event(user, 3), event(user + 1, 1)]
        if self.then == "hang":
            await asyncio.sleep(3600)
        if self.then == "fail":
            raise HistoryUnavailableError("the disk is gone")


def test_a_scan_is_bounded_in_users_and_in_time() -> None:
    """One that is broken off leaves what was read."""
    store = Portions(1000)
    assert stored(store, 3) == [[1, 2, 3]] * 3
    assert store.portions == 3
    assert stored(Portions(2, "hang"), 5) == stored(Portions(2, "fail"), 5) == [[1, 2, 3]] * 2 + [[1]]


# --- The candidate
