import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from turret.service.models.loaded_model import open_live
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.ranking.query import Query, QueryReader, make_query
from turret.service.schemas.cursor import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.breaker import Breaker
from turret.service.stores.contract import Event, History
from turret.service.stores.memory import MemoryHistory, MemoryItems
from turret.tower.bundle.publish import BundleContents, publish

NOW = 1_700_000_000_000
STORED = History(["a", "b"], [NOW - 10, NOW + 120_000])  # the second by a clock that is ahead


def test_pages_count_the_events_that_the_first_has_counted() -> None:
    """Also those ahead of this clock, and whatever the time is that the answer is asked for."""
    for at, asked in ((None, NOW + 120_000), (1_600_000_000, 1_600_000_000_000)):
        first = make_query(RecommendRequest(user_id="u", at=at), STORED, (), NOW)
        assert (first.history, first.request_time) == (["a", "b"], asked)
        cursor = Cursor("v1", first.until, 10, 1.0, 3).text()
        later = History(["a", "b", "c"], [*STORED.times, NOW + 150_000])
        next_page = make_query(RecommendRequest(user_id="u", at=at, cursor=cursor), later, (), NOW + 200_000)
        assert (next_page.history, next_page.request_time) == (["a", "b"], asked)


def test_a_history_that_was_sent_has_no_events_to_wait_for() -> None:
    asked = make_query(RecommendRequest(history=["a"]), History([], []), (), NOW)
    assert (asked.until, asked.request_time) == (NOW, NOW)


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("requested", [True, False, None])
def test_seen_items_are_those_of_the_whole_history(
    tmp_path: Path, make_contents: Callable[..., BundleContents], default: bool, requested: bool | None
) -> None:
    """A tower reads the newest five; an item that was used long before them would come again."""
    publish(tmp_path, replace(make_contents(), exclude_seen=default))
    live = open_live(tmp_path, "v1")
    exclude_seen = default if requested is None else requested
    store, overlay = MemoryHistory(), ItemOverlayCache(MemoryItems())
    reader = QueryReader(Breaker(store), overlay, Settings(bundles=tmp_path, stored_history_limit=5_000))
    events = [Event(str(number), "u", 100 + number % 50, number) for number in range(1_500)]
    request = RecommendRequest(user_id="u", exclude_seen=requested)

    async def read() -> Query:
        await store.append([Event("first", "u", 159, 0), *events])
        return await reader.read(request, live, 2_000)

    query = asyncio.run(read())
    assert (159 in query.history) == exclude_seen
    assert len(query.history) == (1_501 if exclude_seen else 1_000)
