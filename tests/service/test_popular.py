"""What is popular now: decayed counts of stored events, each once, in fallbacks and by `POST /v1/popular`."""

import random
import signal
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import ADMIN, activate, ids, post_events, recommended, serving
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.data.kinds import Kind
from turret.service.errors import ServiceError
from turret.service.overlay.fresh import empty_overlay
from turret.service.popular.counts import Counted, DecayedCounts
from turret.service.popular.popular_now import ENOUGH, PopularNow
from turret.service.settings import read_settings
from turret.service.stores.contract import Arrival, Event
from turret.service.stores.guarded import Breaker
from turret.service.stores.sqlite.histories import SqliteHistory
from turret.service.versions.holder import LoadedModel, ModelHolder, open_live
from turret.tower.bundle.publish import publish

HOUR, DAY = 3_600_000, 86_400_000
HALF_LIVES = {"hour": float(HOUR), "week": 7.0 * DAY}
NOW = 1_790_000_000_000


@pytest.fixture(scope="module")
def live(published: Path) -> LoadedModel:
    return open_live(published, "v1")


def counts_of(events: Sequence[tuple[int, int]], half_life: float, now: int) -> dict[int, float]:
    """The decayed count of each item, stated once more, event by event."""
    counts: dict[int, float] = defaultdict(float)
    for item, time in events:
        counts[item] += 0.5 ** ((now - time) / half_life)
    return dict(counts)


def arrivals(events: Sequence[tuple[int, int]], kind: str | None = None) -> list[Arrival]:
    return [Arrival(f"{number:016x}", item, time, kind) for number, (item, time) in enumerate(events)]


@given(
    events=st.lists(st.tuples(st.integers(95, 170), st.integers(NOW - 40 * DAY, NOW + HOUR)), max_size=60),
    parts=st.integers(1, 5),
    later=st.sampled_from([0, HOUR, 400 * DAY]),
)
def test_counts_are_those_of_each_event_alone(
    live: LoadedModel, events: list[tuple[int, int]], parts: int, later: int
) -> None:
    """Also after 10,000 half-lives without an event, where a sum of float64 would overflow."""
    counts, fresh = DecayedCounts(HALF_LIVES, NOW - 40 * DAY), empty_overlay(live.bundle)
    for part in range(parts):
        counts.add(arrivals(events[part::parts]), {}, 1_000_000, NOW)
    last = (101, NOW + later)
    counts.add(arrivals([last]), {}, 1_000_000, NOW + later)
    # An event of the future counts as one of the moment at which it is counted.
    sent = [*((item, min(time, NOW)) for item, time in events), last]
    known = [event for event in sent if 100 <= event[0] < 160]
    for name, half_life in HALF_LIVES.items():
        popular = counts.ranked(Counted(name, (None,)), live.bundle, fresh)
        wanted = counts_of(known, half_life, NOW + later)
        found = dict(zip(popular.rows + 100, popular.sums * popular.at(NOW + later), strict=True))
        assert set(found) <= set(wanted)
        for item, count in wanted.items():
            assert found.get(item, 0.0) == pytest.approx(count, rel=1e-9, abs=1e-30)
        assert [*found.values()] == sorted(found.values(), reverse=True)


def test_the_least_counted_items_make_room(live: LoadedModel) -> None:
    counts, fresh = DecayedCounts(HALF_LIVES, NOW), empty_overlay(live.bundle)
    counts.add(arrivals([(100, NOW)] * 5 + [(101, NOW)] * 3), {}, 40, NOW)
    for item in range(1_000, 1_200):
        counts.add(arrivals([(item, NOW)]), {}, 40, NOW)
    popular = counts.ranked(Counted("hour", (None,)), live.bundle, fresh)
    assert dict(zip(popular.rows.tolist(), popular.sums.tolist(), strict=True)) == {0: 5.0, 1: 3.0}
    assert len(counts._slots) <= 40


def test_an_event_of_the_future_counts_as_one_of_now(live: LoadedModel) -> None:
    """`turret history load` takes any time; 2^(years / 15 minutes) is no number."""
    counts, fresh = DecayedCounts({"quarter": 900_000.0}, NOW), empty_overlay(live.bundle)
    counts.add(arrivals([(100, NOW + 10_000 * DAY), (101, NOW), (100, 2**53)]), {}, 10**6, NOW)
    popular = counts.ranked(Counted("quarter", (None,)), live.bundle, fresh)
    assert dict(zip((popular.rows + 100).tolist(), popular.sums.tolist(), strict=True)) == {
        100: 2.0,
        101: 1.0,
    }


def test_what_rises_has_a_floor_of_events(live: LoadedModel) -> None:
    counts, fresh = DecayedCounts(HALF_LIVES, NOW), empty_overlay(live.bundle)
    old = [(100, NOW - 3 * DAY)] * 200
    counts.add(arrivals([*old, *[(100, NOW)] * 20, *[(101, NOW)] * 10, (102, NOW)]), {}, 10**6, NOW)
    popular = counts.ranked(Counted("hour", (None,)), live.bundle, fresh)
    assert (popular.rows[:3] + 100).tolist() == [100, 101, 102]
    rising = counts.ranked(Counted("hour", (None,), trend=True), live.bundle, fresh)
    assert (rising.rows + 100)[rising.are_enough(NOW)].tolist() == [101, 100]  # one click of 102 is none
    # Without a later event the ranking stays, and the events are too few an hour later.
    assert (rising.rows + 100)[rising.are_enough(NOW + 1.5 * HOUR)].tolist() == [100]
    assert not rising.are_enough(NOW + DAY).any()


def test_a_clock_that_was_ahead_for_a_moment_leaves_later_events_counted(live: LoadedModel) -> None:
    """Else the events of the right time would weigh 2^-8760 until the process ends."""
    counts, fresh = DecayedCounts(HALF_LIVES, NOW), empty_overlay(live.bundle)
    counts.add(arrivals([(100, NOW)]), {}, 10**6, NOW)
    counts.add(arrivals([(101, NOW + 365 * DAY)]), {}, 10**6, NOW + 365 * DAY)
    counts.add(arrivals([(102, NOW)] * 7), {}, 10**6, NOW)
    popular = counts.ranked(Counted("hour", (None,)), live.bundle, fresh)
    now = dict(zip((popular.rows + 100).tolist(), (popular.sums * popular.at(NOW)).tolist(), strict=True))
    assert (now[102], now[101]) == (7.0, 1.0)


def test_an_event_without_a_kind_counts_as_one_of_the_default_kind(live: LoadedModel) -> None:
    counts, fresh = DecayedCounts(HALF_LIVES, NOW), empty_overlay(live.bundle)
    kinds = {None: "buy", "buy": "buy", "view": "view"}
    for kind in (None, "buy", "view", "of another version"):
        counts.add(arrivals([(100, NOW)], kind), kinds, 10**6, NOW)
    sums = {
        kind: counts.ranked(Counted("hour", (kind,)), live.bundle, fresh).sums.tolist()
        for kind in ("buy", "view", None)
    }
    assert sums == {"buy": [2.0], "view": [1.0], None: [1.0]}


# --- From the store


class Slow:
    """A store between the portions of whose scans `between` runs."""

    def __init__(self, store: SqliteHistory, between: Any) -> None:
        self.store, self.between = store, between

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def arrivals(self, after: str | None) -> Any:
        return await self.store.arrivals(after)

    async def scan(self, first: int, last: int) -> Any:
        async for portion in self.store.scan(first, last):
            await self.between()
            yield portion


def totals(popular: PopularNow, live: LoadedModel) -> dict[int, float]:
    """The sums of the items; with equal times of all events, the numbers of these."""
    assert popular.counts is not None
    ranked = popular.counts.ranked(Counted("week", (None,)), live.bundle, empty_overlay(live.bundle))
    return dict(zip((ranked.rows + 100).tolist(), np.round(ranked.sums, 6).tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
async def test_each_event_counts_once_however_it_comes(
    live: LoadedModel, published: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Before, during and after the scan of a start, sent twice, and moved at a login."""
    monkeypatch.setattr("turret.service.stores.sqlite.histories._SCAN_PORTION", 7)
    draw = random.Random(seed)
    sent: list[Event] = []

    def new(user: str) -> list[Event]:
        made = [
            Event(f"e{len(sent) + n}", user, draw.randrange(100, 160), NOW)
            for n in range(draw.randrange(1, 9))
        ]
        sent.extend(made)
        return made

    store = SqliteHistory()
    holder = ModelHolder(published)

    async def between() -> None:
        await store.append(new(f"u{draw.randrange(30)}"))
        await store.append(draw.sample(sent, min(3, len(sent))))

    for user in range(20):
        await store.append(new(f"u{user}"))
    popular = PopularNow(Breaker(Slow(store, between)), holder, HALF_LIVES, lambda: NOW)
    await popular.advance()
    for _ in range(10):
        await store.append(new("session:s"))
        await store.move("session:s", "u1")
        of_users = [event for event in sent if event.user != "session:s"]
        await store.append(draw.sample(of_users, 3))
        await popular.advance()
    wanted = counts_of([(int(event.item), NOW) for event in sent], HALF_LIVES["week"], NOW)
    assert totals(popular, live) == wanted
    again = PopularNow(Breaker(store), holder, HALF_LIVES, lambda: NOW)
    await again.advance()
    assert totals(again, live) == wanted
    await store.close()


async def test_another_store_in_place_of_the_first_is_counted_anew(
    live: LoadedModel, published: Path
) -> None:
    stores = [SqliteHistory(), SqliteHistory()]
    for store, count in zip(stores, (9, 4), strict=True):
        await store.append([Event(f"e{n}", "u", 96 + count, NOW) for n in range(count)])
    popular = PopularNow(Breaker(stores[0]), ModelHolder(published), HALF_LIVES, lambda: NOW)
    await popular.advance()
    assert totals(popular, live) == {105: 9.0}
    popular._store = Breaker(stores[1])  # an older copy of the store was put back
    await popular.advance()
    assert totals(popular, live) == {100: 4.0}
    for store in stores:
        await store.close()


# --- From an answer


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    made = with_item_tower(contents("v1", kinds={"buy": Kind(), "view": Kind(role="signal")}))
    publish(tmp_path, replace(made, fields={**made.fields, "price": [item % 5 for item in range(60)]}))
    with serving(tmp_path) as client:
        activate(client, "v1")
        yield client


def counted(client: TestClient, **body: Any) -> list[Any]:
    answer = client.post("/v1/popular", json=body)
    return ids(answer.json()) if answer.status_code == 200 else []


def sent(client: TestClient, item: int, count: int, kind: str = "buy", **more: Any) -> None:
    prefix = f"{item}-{kind}-{more.get('time', '')}"
    events = [
        {"event_id": f"{prefix}-{n}", "user_id": f"u{n}", "item_id": item, "kind": kind, **more}
        for n in range(count)
    ]
    post_events(client, *events)


def test_stored_events_without_a_kind_are_of_the_default_kind(tmp_path: Path) -> None:
    kinds = {"buy": Kind(), "view": Kind(role="signal")}
    publish(tmp_path, contents("v1", kinds=kinds, default_kind="buy"))
    with serving(tmp_path) as client:
        activate(client, "v1")
        post_events(client, {"event_id": 1, "user_id": 1, "item_id": 120})
        sent(client, 121, 1, "view")
        until(lambda: counted(client, kinds=["view"]) == [121], "the events are counted")
        assert counted(client) == [120]


def test_strangers_get_what_is_popular_now_where_there_are_enough_events(shop: TestClient) -> None:
    trained = ids(recommended(shop, k=60))
    sent(shop, 155, int(ENOUGH) - 2)
    sent(shop, 155, 40, "view")
    sent(shop, 120, 1)
    until(lambda: counted(shop) == [155, 120], "the events are counted")
    assert recommended(shop, k=60)["items"][0]["source"] == "popular"
    sent(shop, 121, 5)
    until(lambda: counted(shop) == [155, 121, 120], "the events are counted")
    answer = recommended(shop, user_id="nobody", k=60)
    assert ids(answer) == [155, 121, 120, *(item for item in trained if item not in (155, 121, 120))]
    assert {item["source"] for item in answer["items"]} == {"popular_now"}
    assert [round(item["score"]) for item in answer["items"][:4]] == [98, 5, 1, 0]
    pages, page = [], recommended(shop, user_id="nobody", k=7)
    while "cursor" in page:
        pages += ids(page)
        page = recommended(shop, user_id="nobody", k=7, cursor=page["cursor"])
    assert pages + ids(page) == ids(answer)
    assert recommended(shop, history=[101])["items"][0]["source"] == "towers"
    filtered = recommended(shop, k=3, filter={"price": {"equals": 1}})
    assert ids(filtered)[0] == 121
    assert len(ids(filtered)) == 3


def test_a_further_page_has_the_ranking_of_the_first_one(shop: TestClient) -> None:
    """Of a stranger whose first page was of the training while events were too few, and of the call."""
    trained = ids(recommended(shop, k=60))
    first = recommended(shop, k=5)
    sent(shop, 155, int(ENOUGH) + 5)
    until(lambda: counted(shop) == [155], "the events are counted")
    second = recommended(shop, k=5, cursor=first["cursor"])
    assert ids(first) + ids(second) == trained[:10]
    now = recommended(shop, k=5)
    assert ids(now)[0] == 155
    sent(shop, 140, 2)
    until(lambda: counted(shop) == [155, 140], "the events are counted")
    page = shop.post("/v1/popular", json={"k": 1}).json()
    of_views = shop.post("/v1/popular", json={"k": 1, "kinds": ["view", "buy"]}).json()
    wrong: list[tuple[str, dict[str, Any], Any]] = [
        ("popular", {"kinds": ["view"]}, page),
        ("popular", {"half_life": "week"}, page),
        ("popular", {}, first),
        ("recommend", {}, of_views),
    ]
    for call, body, of in wrong:
        answer = shop.post(f"/v1/{call}", json={**body, "cursor": of["cursor"]})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "cursor"), answer.text
    assert ids(shop.post("/v1/popular", json={"k": 1, "cursor": page["cursor"]}).json()) == [140]


def test_boosts_beyond_any_float_are_in_their_order(shop: TestClient) -> None:
    """A boost of 1,000 is above one of 100 whatever the counts; the explanation names both."""
    sent(shop, 101, 50)
    sent(shop, 102, 2)
    until(lambda: counted(shop) == [101, 102], "the events are counted")
    boost = [{"filter": {"price": {"equals": price}}, "by": by} for price, by in ((1, 100), (2, 1_000))]
    body = {"boost": boost, "explain": True}
    answer = shop.post("/v1/popular", json=body).json()
    assert ids(answer) == [102, 101]
    explained = answer["explanation"]["items"]
    assert [item["boosts"] for item in explained] == [
        [{"rule": None, "by": 1000.0}],
        [{"rule": None, "by": 100.0}],
    ]
    trained = recommended(shop, k=60, **body)
    prices = [item["fields"]["price"] for item in trained["items"] if item["score"] > 0]
    assert prices[: prices.count(2)] == [2] * prices.count(2)
    assert prices[prices.count(2) :][: prices.count(1)] == [1] * prices.count(1)
    pages, page = [], recommended(shop, k=7, boost=boost)
    while "cursor" in page:
        pages += ids(page)
        page = recommended(shop, k=7, boost=boost, cursor=page["cursor"])
    assert pages + ids(page) == ids(trained)


@pytest.mark.parametrize("at", ["0001-01-01", "1970-01-01", "2020-01-01", "9999-12-31"])
def test_an_answer_of_any_time_has_scores_that_are_numbers(shop: TestClient, at: str) -> None:
    sent(shop, 155, int(ENOUGH) + 5)
    until(lambda: counted(shop) == [155], "the events are counted")
    boost = [{"filter": {"price": {"gte": 0}}, "by": 1_000}]
    for more in ({}, {"boost": boost}, {"boost": boost, "pin": [{"item": 155, "position": 2}]}):
        answer = recommended(shop, at=at, k=5, **more)
        assert all(isinstance(item["score"], float) for item in answer["items"])
        if "cursor" in answer:
            assert recommended(shop, at=at, k=5, **more, cursor=answer["cursor"])["items"]


def test_the_call_takes_the_conditions_of_an_answer(shop: TestClient) -> None:
    body = {"features": placed([0.1] * 8), "fields": {"title": "New", "price": 1}}
    assert shop.put("/v1/items/900", json=body, headers=ADMIN).status_code == 200
    for item, count in ((150, 9), (900, 7), (140, 5), (130, 3)):
        sent(shop, item, count)
    sent(shop, 135, 20, "view")
    sent(shop, 136, 50, time="2020-01-01")
    until(lambda: counted(shop) == [150, 900, 140, 130], "the events are counted")
    assert counted(shop, kinds=["view"]) == [135]
    assert counted(shop, kinds=["view", "buy"], k=2) == [135, 150]
    assert counted(shop, exclude=[150], filter={"price": {"equals": 1}}) == [900]
    assert counted(shop, pin=[{"item": 130, "position": 1}]) == [130, 150, 900, 140]
    assert counted(shop, boost=[{"filter": {"title": {"equals": "New"}}, "by": 1}])[0] == 900
    first = shop.post("/v1/popular", json={"k": 2}).json()
    assert counted(shop, k=2, cursor=first["cursor"]) == [140, 130]
    assert set(counted(shop, trend=True)) == {150, 900}  # the others have decayed below the floor
    rules = {"dear": {"filter": {"price": {"gt": 1}}, "default": True}}
    assert shop.put("/v1/rules", json={"rules": rules}, headers=ADMIN).status_code == 200
    assert counted(shop) == []
    assert counted(shop, rules=[]) == [150, 900, 140, 130]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"half_life": "year"}, "half_life", "there are: quarter, hour, week"),
        ({"kinds": ["buy", "steal"]}, "kinds.1", "there are: buy, view"),
        ({"kinds": []}, "kinds", ""),
        ({"half_life": 5}, "half_life", ""),
        ({"history": [101]}, "history", "unknown field"),
        ({"trend": True, "half_life": "week"}, "half_life", "shorter are: quarter, hour"),
        ({"min_score": 3}, "min_score", "the scores are counts of events here; leave this out"),
    ],
)
def test_what_makes_no_sense_is_refused(
    shop: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    until(lambda: shop.post("/v1/popular", json={}).status_code == 200, "the stored events are counted")
    answer = shop.post("/v1/popular", json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert words in answer.text


def test_a_service_that_counts_nothing_says_so(bundles: Path) -> None:
    with serving(bundles, popular="") as client:
        answer = client.post("/v1/popular", json={})
        assert answer.status_code == 409
        assert "TURRET_POPULAR names no half-life" in answer.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *[(text, "names no half-life; write such as") for text in ("hour", "hour=1", "Hour=1h", "a=1y")],
        ("a=0h", "names no half-life; write such as .*1 to 10,000 of s, m, h or d"),
        ("hour=1h,hour=2h", "two half-lives are called hour; give each a name of its own"),
        ("a=1h,b=1h,c=1h,d=1h,e=1h,f=1h", "6 half-lives; name at most 5"),
    ],
)
def test_half_lives_are_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv("TURRET_POPULAR", text)
    with pytest.raises(ServiceError, match=words):
        read_settings()


def test_half_lives_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURRET_POPULAR", "minute=1m, day=1d")
    assert read_settings().popular == {"minute": 60_000.0, "day": 86_400_000.0}


@pytest.mark.process
def test_all_workers_count_the_same_also_after_a_kill(tmp_path: Path, bundles: Path, start: Start) -> None:
    store = f"sqlite:///{tmp_path}/history.sqlite"

    def counted_by(service: Process) -> set[tuple[tuple[int, int], ...]]:
        """The counts of many answers, which all workers give."""
        answers = [service.client.post("/v1/popular", json={"half_life": "week"}).json() for _ in range(20)]
        return {
            tuple((item["id"], round(item["score"])) for item in answer.get("items", ()))
            for answer in answers
        }

    service = start(bundles, workers=2, store=store)
    for item, count in ((110, 5), (120, 3)):
        events = [{"event_id": f"{item}-{n}", "user_id": f"u{n}", "item_id": item} for n in range(count)]
        for _ in range(2):
            assert service.client.post("/v1/events", json={"events": events}).status_code == 200
    until(lambda: counted_by(service) == {((110, 5), (120, 3))}, "all workers count the events")
    service.stop(signal.SIGKILL)
    again = start(bundles, workers=2, store=store)
    until(lambda: counted_by(again) == {((110, 5), (120, 3))}, "the stored events are counted at the start")
