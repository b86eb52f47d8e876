"""From a query to a page of items: what is read for it, what is chosen, and what is answered together."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from tests.conftest import contents
from turret.data.kinds import Kind
from turret.data.vocabulary import Vocabulary
from turret.service.errors import RequestError
from turret.service.observing.quality import AnswerRecord
from turret.service.overlay.fresh import FreshItems
from turret.service.overlay.item_overlay_cache import ItemOverlayCache
from turret.service.overlay.persistent import GrowingArray
from turret.service.ranking.batches import MicroBatcher, latency_of, recommend
from turret.service.ranking.item_view import ItemView
from turret.service.ranking.query import NO_HISTORY, Query, QueryReader, make_query
from turret.service.ranking.searching import (
    CAPPED,
    CAPPED_PER_ITEM,
    PAGED,
    POOL,
    POOL_PER_ITEM,
    Ranked,
    select,
)
from turret.service.schemas.fields import Cursor
from turret.service.schemas.requests import RecommendRequest
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.guarded import Breaker
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.stores.sqlite.shared import SqliteItems
from turret.service.versions.holder import LoadedModel, open_live
from turret.service.versions.record import RuleSet
from turret.tower.bundle.publish import publish
from turret.tower.catalog.columns import Coded
from turret.tower.retrieval import Cap, Ranking

# --- The query


DAY = 86_400_000  # milliseconds


@pytest.mark.parametrize(
    ("kinds", "default", "requested", "excludes"),
    [
        ({}, True, {"exclude_seen": False}, False),
        ({}, False, {"exclude_seen": True}, True),
        ({"buy": Kind(consume=1)}, None, {}, True),
        ({"buy": Kind(consume=1)}, None, {"at": 2 * DAY}, False),
        ({"buy": Kind(), "return": Kind(role="negative")}, None, {}, False),
        ({"buy": Kind(), "return": Kind(role="negative")}, None, {"exclude_seen": ("return",)}, True),
        ({"buy": Kind(role="ignored"), "view": Kind()}, None, {}, True),
        ({}, False, {"among": "new"}, True),
        ({"buy": Kind()}, None, {"among": "again"}, True),
    ],
)
def test_seen_items_are_those_of_the_whole_history(
    tmp_path: Path, kinds: dict[str, Kind], default: bool | None, requested: dict[str, Any], excludes: bool
) -> None:
    """A tower reads the newest five; an item that was used long before them would come again.

    It is also needed where the newest events are of a kind that no tower reads.
    """
    made = contents(exclude_seen=default)
    publish(tmp_path, replace(made, card=made.card.model_copy(update={"kinds": kinds})))
    live = open_live(tmp_path, "v1")
    store, overlay = SqliteHistory(), ItemOverlayCache(SqliteItems())
    reader = QueryReader(
        Breaker(store), overlay, Settings(bundles=tmp_path, stored_history_limit=5_000), RuleSet
    )
    events = [Event(str(number), "u", 100 + number % 50, number, "buy") for number in range(1_500)]
    request = RecommendRequest.model_construct(user_id="u", **requested)

    async def read() -> Query:
        await store.append([Event("first", "u", 159, 0, "buy"), *events])
        return await reader.read(request, live, 2_000)

    query = asyncio.run(read())
    assert (159 in query.history) == excludes
    assert len(query.history) == (1_501 if excludes else 1_000)


@pytest.mark.parametrize(
    ("duplicates", "gap", "visit", "count"),
    [
        ("keep", None, 100, 1_000),
        ("last", None, 100, 1_000),
        ("first", None, 100, 1_500),
        ("strongest", None, 100, 1_500),
        ("strongest", "1s", 100, 1_000),  # the newest 20 visits are whole
        ("strongest", "1s", 1_500, 1_500),
        ("exact", None, 100, 1_000),
        ("exact", None, 1_500, 1_500),
    ],
)
def test_as_many_events_are_read_as_make_a_history_when_they_are_merged(
    tmp_path: Path, duplicates: str, gap: str | None, visit: int, count: int
) -> None:
    """The tower reads five. Visits have so many events each, all at one time."""
    made = contents(exclude_seen=False)
    card = made.card.model_copy(update={"duplicates": duplicates, "session_gap": gap})
    publish(tmp_path, replace(made, card=card))
    live, store = open_live(tmp_path, "v1"), SqliteHistory()
    reader = QueryReader(
        Breaker(store),
        ItemOverlayCache(SqliteItems()),
        Settings(bundles=tmp_path, stored_history_limit=5_000),
        RuleSet,
    )
    events = [Event(str(number), "u", 100 + number % 50, number // visit * 5_000) for number in range(1_500)]

    async def read() -> Query:
        await store.append(events)
        return await reader.read(RecommendRequest.model_construct(user_id="u"), live, 10**9)

    assert len(asyncio.run(read()).history) == count


# --- A page of the ranking

COUNT = 1_000
# Every score twice, so that pages end in ties.
SCORES = np.repeat(np.arange(COUNT // 2, 0, -1), 2).astype(np.float32)


class Shelf:
    """Items whose field `brand` is the row's tens, and whose vectors are drawn."""

    drawn = np.random.default_rng(0).normal(size=(COUNT, 8)).astype(np.float32)

    def __init__(self) -> None:
        self.most_compared = self.most_read = 0

    def coded(self, names: Iterable[str], rows: NDArray[np.int64]) -> list[Coded]:
        self.most_read = max(self.most_read, len(rows))
        places = np.arange(len(rows))
        return [Coded(places, rows // 10 if name == "brand" else np.zeros(len(rows), int)) for name in names]

    def directions(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.most_compared = max(self.most_compared, len(rows))
        found: NDArray[np.float32] = self.drawn[rows]
        return found


def fixed(order: Sequence[int], scores: Any) -> Ranked:
    """The best of these rows, which have these scores."""
    return lambda k: Ranking(np.array(order[:k], np.int64), np.array(scores[:k], np.float32))


def first(count: int) -> Ranked:
    return fixed(range(count), SCORES[:count])


BEST = first(COUNT)


def conditions(k: int, after: Cursor | None = None, **more: Any) -> Query:
    """A query for the `k` best items after those of a page."""
    return Query(RecommendRequest(k=k, **more), (), None, 0, 0, (), after)


def chosen(query: Query, ranked: Ranked = BEST, shelf: Shelf | None = None) -> list[int]:
    found: list[int] = select(ranked, query, shelf or Shelf()).rows.tolist()  # type: ignore[arg-type]
    return found


OTHER_BITS = [float(np.nextafter(SCORES[3], np.float32(towards))) for towards in (0.0, 1e9)]
TIED = fixed([9, 3, 7, 1], [2.0, 2.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("cursor", "ranked", "k", "expected"),
    [
        (
            (4, OTHER_BITS[0], 3),
            first(COUNT),
            3,
            [4, 5, 6],
        ),  # of a machine whose arithmetic ends in other bits
        ((4, OTHER_BITS[1], 3), BEST, 3, [4, 5, 6]),
        ((500, SCORES[3], 3), BEST, 3, [4, 5, 6]),  # most of the items that were shown are withdrawn
        ((2, SCORES[60], 60), BEST, 5, [61, 62, 63, 64, 65]),  # more came before it
        # The row that ended the page is gone, and the other of its score stood above it.
        ((2, 2.0, 5), fixed([3, 7, 9], [2.0, 2.0, 1.0]), 5, [7, 9]),
        # The item's score has changed: its new position says nothing about the page before.
        ((2, 2.0, 3), fixed([5, 7, 9, 3], [2.5, 1.5, 1.0, 0.5]), 5, [7, 9, 3]),
        # Division by the temperature may leave a lower row behind a higher one of the same score.
        ((1, 2.0, 9), TIED, 1, [3]),
        ((2, 2.0, 3), TIED, 1, [7]),
        ((3, 2.0, 7), TIED, 1, [1]),
    ],
)
def test_a_page_is_found_though_the_ranking_has_changed(
    cursor: tuple[int, float, int], ranked: Ranked, k: int, expected: list[int]
) -> None:
    shown, score, row = cursor
    assert chosen(conditions(k, Cursor("v1", 0, shown, float(score), row)), ranked) == expected


@pytest.mark.parametrize(
    ("shown", "last", "found"),
    [(0xFFFFFFF, 5, 10), (0, 10**6, 0), (PAGED - 4, PAGED - 5, 4)],
    ids=["made-up offset", "made-up score", "the last page"],
)
def test_no_cursor_makes_a_page_read_on_behind_the_last_one(shown: int, last: int, found: int) -> None:
    read: list[int] = []

    def ranked(k: int) -> Ranking:
        read.append(min(k, 10**5))
        return Ranking(rows := np.arange(read[-1]), -rows.astype(np.float32))

    assert len(chosen(conditions(10, Cursor("v1", 0, shown, -float(last), last)), ranked)) == found
    assert sum(read) <= PAGED + 10


@pytest.mark.parametrize(
    ("query", "count", "expected"),
    [
        (conditions(10, min_score=499.0), COUNT, [0, 1, 2, 3]),
        (conditions(4, min_score=1e9), COUNT, []),
        (conditions(101, cap={"brand": 1}), COUNT, list(range(0, COUNT, 10))),
        (conditions(5, cap={"brand": 2, "tags": 3}), COUNT, [0, 1, 10]),
        (conditions(3), 2, [0, 1]),
        (conditions(3), 0, []),
    ],
)
def test_all_that_meet_the_conditions_are_found_however_far_down(
    query: Query, count: int, expected: list[int]
) -> None:
    assert chosen(query, first(count)) == expected


def test_a_cap_that_cannot_be_met_reads_a_multiple_of_k_and_no_more() -> None:
    """One on a field with one value would else read the catalog for each request of a batch."""
    many = 100_000
    ranked, shelf = fixed(range(many), np.arange(many, 0, -1)), Shelf()
    assert chosen(conditions(10, cap={"tags": 3}), ranked, shelf) == [0, 1, 2]
    assert shelf.most_read == CAPPED
    assert len(chosen(conditions(300, cap={"tags": 3, "brand": 1}), ranked, shelf)) == 3
    assert shelf.most_read == 300 * CAPPED_PER_ITEM


def test_diversity_chooses_from_the_best_alone() -> None:
    rows = chosen(conditions(10, diversity=0.5))
    assert rows != list(range(10))
    assert rows[0] == 0
    assert max(rows) < POOL


@pytest.mark.parametrize("diversity", [0.0, 1.0])
def test_an_item_that_a_cap_keeps_out_costs_nothing(
    diversity: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cap that can't be met is a cheap request, and a batch has a hundred of them."""
    looked_at: set[int] = set()
    take = Cap.take

    def noted(self: Cap, place: int) -> None:
        looked_at.add(place)
        take(self, place)

    monkeypatch.setattr(Cap, "take", noted)
    found = chosen(conditions(100, cap={"tags": 2, "brand": 1}, diversity=diversity))
    assert len(found) == 2
    assert looked_at == {*found}


def test_a_cap_that_keeps_nearly_all_out_has_no_more_items_compared_with_each_other() -> None:
    """Else the work would grow with the square: beyond the best, items come by their scores."""
    shelf = Shelf()
    rows = chosen(conditions(100, diversity=0.3, cap={"brand": 1}), shelf=shelf)
    assert len({row // 10 for row in rows}) == 100
    assert shelf.most_compared <= POOL_PER_ITEM * 100


@pytest.mark.parametrize(("item_bias", "width"), [(True, 2), (False, 3)])
def test_items_are_not_alike_for_being_popular(item_bias: bool, width: int) -> None:
    """Two items at right angles with the same large bias would else seem to be nearly the same."""
    vectors = np.array([[1, 0, 9], [0, 1, 9]], dtype=np.float32)
    scoring = SimpleNamespace(item_bias=item_bias)
    encoder = SimpleNamespace(gather=lambda rows, more: vectors[rows])
    vocabulary, manifest = Vocabulary(["a", "b"]), SimpleNamespace(scoring=scoring)
    bundle: Any = SimpleNamespace(vocabulary=vocabulary, manifest=manifest, encoder=encoder)
    view = ItemView(bundle, FreshItems(vocabulary, GrowingArray(np.empty((0, 3), np.float32))))
    assert np.array_equal(view.directions(np.array([0, 1])), vectors[:, :width])


# --- Queries that arrive together


@pytest.fixture
def live(published: Path) -> LoadedModel:
    live = open_live(published, "v1")
    latency_of(live).add(1e-4)
    return live


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many queries each call of `recommend` is given from here on."""
    sizes: list[int] = []

    def counted(live: Any, fresh: Any, queries: Sequence[Query], *more: Any) -> Any:
        sizes.append(len(queries))
        return recommend(live, fresh, queries, *more)

    monkeypatch.setattr("turret.service.ranking.batches.recommend", counted)
    return sizes


def asked(*history: int, **more: Any) -> Query:
    return make_query(RecommendRequest(history=list(history), **more), NO_HISTORY, (), 0)


def nothing_beside(live: LoadedModel) -> FreshItems:
    none = np.empty((0, live.bundle.manifest.dimension), np.float32)
    return FreshItems(live.bundle.vocabulary, GrowingArray(none))


def together(live: LoadedModel, *queries: Query, noted: list[AnswerRecord] | None = None) -> list[Any]:
    """The answers in JSON with their stages, or errors, to queries that are asked in one turn."""
    fresh = nothing_beside(live)

    async def ask() -> list[Any]:
        batcher = MicroBatcher(lambda _, notes: None if noted is None else noted.extend(notes))
        calls = (batcher.answer(live, fresh, one) for one in queries)
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(ask())
    return [one if isinstance(one, BaseException) else (orjson.dumps(one[0]), one[1]) for one in found]


QUERIES = [asked(101), asked(102, 103), asked(), asked(105, k=3), asked(101, exclude_seen=False)]


def test_what_arrives_together_is_answered_together_and_as_if_alone(
    live: LoadedModel, sizes: list[int]
) -> None:
    """Each is told its share of the stages."""
    noted: list[AnswerRecord] = []
    answers = together(live, *QUERIES, noted=noted)
    assert sizes == [len(QUERIES)]
    assert [note.known for note in noted] == [1, 2, 0, 1, 1]
    for query, (answer, stages) in zip(QUERIES, answers, strict=True):
        assert answer == together(live, query)[0][0]
        assert set(stages) == {"rows", "encode", "search", "answer"}


async def test_queries_of_one_turn_are_answered_by_the_overlay_that_each_has_read(
    live: LoadedModel, sizes: list[int]
) -> None:
    """Between two of them an item was withdrawn: the later one never shows it."""
    before, query = nothing_beside(live), asked(101)

    async def ask(*overlays: FreshItems) -> list[list[int]]:
        batcher = MicroBatcher(lambda *_: None)
        answers = await asyncio.gather(*(batcher.answer(live, fresh, query) for fresh in overlays))
        return [[item["id"] for item in orjson.loads(orjson.dumps(answer))["items"]] for answer, _ in answers]

    (ids,) = await ask(before)
    after = replace(before, withdrawn=np.array([live.bundle.vocabulary.row(ids[0])]), number=1)
    first, second = await ask(before, after)
    assert first == ids
    assert ids[0] not in second
    assert sizes == [1, 1, 1]


def test_the_fault_of_one_is_not_that_of_the_others(live: LoadedModel, sizes: list[int]) -> None:
    first, refused, last = together(live, asked(101), asked(101, cap={"nothing": 1}), asked(102))
    assert isinstance(refused, RequestError)
    assert refused.field == "cap.nothing"
    assert sizes == [3, 1, 1, 1]
    for (answer, _), query in ((first, asked(101)), (last, asked(102))):
        assert answer == together(live, query)[0][0]


async def test_who_has_given_up_is_not_answered(live: LoadedModel, sizes: list[int]) -> None:
    batcher, fresh = MicroBatcher(lambda *_: None), nothing_beside(live)
    tasks = [asyncio.create_task(batcher.answer(live, fresh, one)) for one in QUERIES[:3]]
    asyncio.get_running_loop().call_soon(tasks[1].cancel)
    _, given_up, _ = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(given_up, asyncio.CancelledError)
    alone = asyncio.create_task(batcher.answer(live, fresh, QUERIES[0]))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.gather(alone, return_exceptions=True)
    await batcher.answer(live, fresh, QUERIES[0])
    assert sum(sizes) == 3
