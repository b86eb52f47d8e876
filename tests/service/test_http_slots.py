"""`among` of `/v1/recommend`: all items, new ones, or used ones again, beside full rankings by NumPy."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

import turret
from tests.conftest import contents
from tests.support.repeats import GAPS, LOG, TEMPERATURE, events_of, gains, ranking, repeating, shop
from tests.support.service_app import ids, post_events, recommended, serving
from turret.service.overlay.fresh import FreshItems, Sent
from turret.service.overlay.persistent import GrowingArray, LayeredMap
from turret.service.ranking.answers import ids_of
from turret.service.ranking.batches import recommend
from turret.service.ranking.query import NO_HISTORY, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.repeats import ItemUse
from turret.tower.retrieval import Retriever

NOW = 1_700_000_000
DAY = 86_400
# What is read: item, code of the kind, days ago.
READ = [(105, 0, 60.0), (101, 1, 59.0), (102, 1, 40.0), (101, 1, 39.0), (130, 0, 30.0), (107, 2, 20.0)]
READ += [(101, 1, 19.0), (108, 2, 3.0), (105, 0, 0.004), (150, 0, 0.002)]
USED = READ[:-2]  # without the views of the visit that goes on
AGAIN, CONSUMED = {101, 102, 105, 107, 108, 130}, {108, 140}
HISTORY: dict[str, Any] = {
    "history": [{"item": item, "kind": kind} for item, kind, _ in LOG],
    "history_times": [NOW - days * DAY for *_, days in LOG],
    "at": NOW,
}


def scores_of(repeats: bool = True) -> NDArray[np.float64]:
    """The score of each item [60], by loops over the used events."""
    made = shop()
    vectors: NDArray[np.float64] = np.array(made.item_vectors, dtype=np.float64)
    mean = vectors[[item - 100 for item, *_ in READ][-5:]].mean(axis=0)
    scores: NDArray[np.float64] = vectors @ (mean / np.linalg.norm(mean)) / TEMPERATURE
    rows, kinds = [item - 100 for item, *_ in USED], [kind for _, kind, _ in USED]
    times = [NOW - days * DAY for *_, days in USED]
    own = gains(rows, scores.copy(), ItemUse(made.popularity, GAPS), times, NOW, kinds) if repeats else {}
    for row, gain in own.items():
        scores[row] += gain
    return scores


RANKED = [100 + row for row in np.argsort(-scores_of()).tolist() if 100 + row not in CONSUMED]
SLOTS = {
    "all": RANKED,
    "new": [item for item in RANKED if item not in AGAIN],
    "again": [item for item in RANKED if item in AGAIN],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slots")
    publish(folder, shop())
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    with serving(root) as client:
        post_events(client, *events_of(7, NOW))
        yield client


@pytest.mark.parametrize("among", SLOTS)
def test_a_slot_is_the_whole_ranking_of_its_items(client: TestClient, root: Path, among: str) -> None:
    """Of given and stored events, in a batch, page by page, and by the Python API."""
    expected = SLOTS[among]
    answer = recommended(client, **HISTORY, among=among, k=60)
    assert ids(answer) == expected
    assert [one["score"] for one in answer["items"]] == pytest.approx(
        [scores_of()[item - 100] for item in expected], rel=1e-4, abs=1e-4
    )
    assert answer["exhausted"] is True
    stored = {"user_id": 7, "at": NOW, "among": among}
    assert ids(recommended(client, **stored, k=60)) == expected
    batch = {"requests": [{**HISTORY, "among": slot, "k": 4} for slot in SLOTS] + [stored]}
    results = client.post("/v1/recommend/batch", json=batch).json()["results"]
    assert [ids(one) for one in results] == [*(items[:4] for items in SLOTS.values()), expected[:10]]
    for body in ({**HISTORY, "among": among}, stored):
        page = recommended(client, **body, k=2)
        pages = ids(page)
        while "cursor" in page:
            page = recommended(client, **body, k=2, cursor=page["cursor"])
            pages += ids(page)
        assert pages == expected
    given = [{"item": item, "kind": kind, "time": NOW - days * DAY} for item, kind, days in LOG]
    found = turret.load(root).recommend(given, k=60, at=NOW, among=among)  # type: ignore[arg-type]
    assert [one.id for one in found] == expected


@pytest.mark.parametrize("among", SLOTS)
def test_conditions_choose_within_a_slot(client: TestClient, among: str) -> None:
    def asked(**conditions: Any) -> list[int]:
        return ids(recommended(client, **HISTORY, **({"k": 60} | conditions), among=among))

    whole = SLOTS[among]
    assert asked(exclude=[101, 110]) == [item for item in whole if item not in (101, 110)]
    cheap = {"price": {"lte": 30}}
    assert asked(filter=cheap) == [item for item in whole if item <= 130]
    assert asked(filter={"price": {"lt": 0}}) == []
    least = scores_of()[whole[2] - 100] - 1e-3
    assert asked(min_score=least) == whole[:3]
    assert asked(cap={"genres": 2}) == whole[:2]  # all are dramas
    assert asked(filter=cheap, cap={"price": 1}, k=3) == [item for item in whole if item <= 130][:3]
    diverse = asked(diversity=0.5, k=len(whole))
    assert (set(diverse), diverse[0], diverse != whole) == ({*whole}, whole[0], True)
    rankable = sorted(range(100, 160), key=lambda item: -scores_of()[item - 100])
    own = {"all": rankable, "again": [item for item in rankable if item in AGAIN]}
    own["new"] = [item for item in rankable if item not in AGAIN]
    assert asked(exclude_seen=[]) == own[among]
    if among == "again":
        assert asked(exclude_seen=["view"]) == [item for item in own[among] if item not in (105, 130, 102)]


def test_of_an_empty_history_nothing_comes_again_and_popular_items_are_new(client: TestClient) -> None:
    """So it is of one that has known items, but none in use: the visit goes on, or nobody chose them."""
    nothing: list[dict[str, Any]] = [{}, {"history": []}, {"user_id": "nobody"}, {"history": [999]}]
    for body in nothing:
        answer = recommended(client, **body, among="again", explain=True)
        assert (answer["items"], answer["exhausted"], "cursor" in answer) == ([], True, False)
        new = recommended(client, **body, among="new", k=4)
        assert (ids(new), new["items"][0]["source"]) == ([100, 101, 102, 103], "popular")
    visit = {"history": [{"item": 101, "kind": "view"}], "history_times": [NOW - 60], "at": NOW}
    for again in (visit, {**visit, "history": [{"item": 101, "kind": "return"}]}):
        assert recommended(client, **again, among="again", explain=True)["items"] == []
    new = recommended(client, **visit, among="new", k=60)
    assert ids(new) == ids(recommended(client, **visit, k=60))
    assert 101 in ids(new)


@pytest.mark.parametrize(
    "value", ["", "All", "new ", "again\u0301", "all,new", "new\x00", 0, 1, True, None, ["new"], {"new": 1}]
)
def test_other_slots_are_refused_with_the_three(client: TestClient, value: Any) -> None:
    answer = client.post("/v1/recommend", json={"among": value})
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (422, "among")
    assert error["message"] == "send 'all', 'new' or 'again'"


def test_a_slot_belongs_to_a_history(client: TestClient) -> None:
    for path in ("search", "items/101/similar"):
        answer = client.post(
            f"/v1/{path}", json={"among": "new"} | ({"query": "x"} if path == "search" else {})
        )
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "among")
        assert "unknown field" in answer.json()["error"]["message"]


@pytest.mark.parametrize("among", SLOTS)
def test_a_cursor_belongs_to_its_slot(client: TestClient, among: str) -> None:
    cursor = recommended(client, **HISTORY, k=2, among=among)["cursor"]
    for other in {*SLOTS} - {among}:
        answer = client.post("/v1/recommend", json={**HISTORY, "k": 2, "cursor": cursor, "among": other})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "cursor")
        assert f"with among = {among};" in answer.json()["error"]["message"]
    if among != "all":
        answer = client.post("/v1/items/101/similar", json={"cursor": cursor})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "cursor")


def test_a_slot_that_is_always_empty_is_refused(tmp_path: Path, client: TestClient, root: Path) -> None:
    """Not one that may have items: of kinds that consume for some days, or of events without a kind."""
    publish(tmp_path, contents())
    with serving(tmp_path) as other:
        answer = other.post("/v1/recommend", json={"history": [101], "among": "again"})
        error = answer.json()["error"]
        assert (answer.status_code, error["field"], error["value"]) == (422, "among", "again")
        assert error["message"].startswith("version v1 leaves out all used items")
        assert ids(recommended(other, history=[101], among="again", exclude_seen=False)) == [101]
        assert ids(recommended(other, history=[101], among="new", k=60)) == [
            item for item in ids(recommended(other, history=[101], exclude_seen=False, k=60)) if item != 101
        ]
    batch = {"requests": [{}, {"among": "again", "exclude_seen": True}]}
    answer = client.post("/v1/recommend/batch", json=batch)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "requests.1.among")
    allowed = {"exclude_seen": ["view", "purchase", "loan"], "among": "again", "history": [101]}
    assert ids(recommended(client, **allowed)) == [101]
    model = turret.load(root)
    with pytest.raises(ValueError, match="among = 'again': version v1 leaves out all used items"):
        model.recommend([101], exclude_seen=True, among="again")
    with pytest.raises(turret.TurretError, match="among can't be 'used': give 'all' or 'new' or 'again'"):
        model.recommend([101], among="used")  # type: ignore[arg-type]
    assert (model.recommend([], among="again"), len(model.recommend([], among="new"))) == ([], 10)


def test_a_version_without_a_repeat_term_ranks_used_items_by_its_towers(tmp_path: Path) -> None:
    publish(tmp_path, shop(repeats=None))
    scores = scores_of(repeats=False)
    ranked = sorted(range(100, 160), key=lambda item: -scores[item - 100])
    with serving(tmp_path) as client:
        again = recommended(client, **HISTORY, among="again", k=60, explain=True)
        assert ids(again) == [item for item in ranked if item in AGAIN - CONSUMED]
        new = recommended(client, **HISTORY, among="new", k=60)
        assert ids(new) == [item for item in ranked if item not in AGAIN | CONSUMED]
    assert again["explanation"]["plan"] == {"kind": "subset", "allowed": None, "fetched": 5}
    assert again["explanation"]["items"][0]["uses"]["times"] in (1, 3)


def test_used_items_that_were_put_changed_or_withdrawn_since_the_export(tmp_path: Path) -> None:
    publish(tmp_path, shop())
    with serving(tmp_path) as client:
        whole = ids(recommended(client, **HISTORY, among="again", k=60))
        gone, changed = whole[0], whole[1]
        client.delete(f"/v1/items/{gone}")
        client.patch(f"/v1/items/{changed}", json={"fields": {"price": -5}})
        assert ids(recommended(client, **HISTORY, among="again")) == [item for item in whole if item != gone]
        cheap = {"price": {"lt": 0}}
        assert ids(recommended(client, **HISTORY, among="again", filter=cheap)) == [changed]
        assert ids(recommended(client, **HISTORY, among="new", filter=cheap)) == []


@pytest.mark.parametrize("among", SLOTS)
def test_an_item_that_was_put_after_the_export_is_used_or_new(tmp_path: Path, among: str) -> None:
    """Of two such items the history has one."""
    made = repeating()
    bundle = Bundle.open(publish(tmp_path, made))
    new = np.array([[0.6, 0.8, *[0.0] * 6], [0.0, 0.6, 0.8, *[0.0] * 5]], dtype=np.float32)
    places, sent = {"998": 0, "999": 1}, {0: Sent("998", b"{}"), 1: Sent("999", b"{}")}
    served = np.array([True, True])
    fresh = FreshItems(bundle.vocabulary, GrowingArray(new), served, LayeredMap(places), LayeredMap(sent))
    request = RecommendRequest.model_validate({"history": [999, 105, 999, 107], "k": 62, "among": among})
    query = make_query(request, NO_HISTORY, (), NOW * 1000)
    model = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC))
    (answer,) = recommend(model, replace(fresh, added=fresh.added.changed({0: b"{}", 1: b"{}"})), [query])
    vectors = np.vstack([made.item_vectors, new])
    rows, _ = ranking(replace(made, item_vectors=vectors), [61, 5, 61, 7])
    ranked = [938 + row if row >= 60 else 100 + row for row in rows.tolist()]
    used = {105, 107, 999}
    own = {"all": ranked, "again": [one for one in ranked if one in used]}
    assert ids_of(answer) == own.get(among, [one for one in ranked if one not in used])


def test_an_explanation_has_the_facts_of_a_used_item(client: TestClient) -> None:
    """The towers' score and the bonus are the score; a view of the visit that goes on is no use."""
    answer = recommended(client, **HISTORY, among="all", k=60, explain=True)
    explained = {one["id"]: one for one in answer["explanation"]["items"]}
    assert {item for item, one in explained.items() if "uses" in one} == AGAIN - CONSUMED
    expected: dict[int, Any] = {
        101: {"times": 3, "kinds": {"purchase": 3}, "every_days": 20.0, "last_days_ago": 19.0},
        102: {"times": 1, "kinds": {"purchase": 1}, "every_days": None, "last_days_ago": 40.0},
        105: {"times": 1, "kinds": {"view": 1}, "every_days": None, "last_days_ago": 60.0},
    }
    for item, uses in expected.items():
        assert explained[item]["uses"] == uses
    place = len(LOG) - 2  # in front of the visit that goes on
    items, times = list(HISTORY["history"]), list(HISTORY["history_times"])
    items.insert(place, {"item": 101, "kind": "view"})
    times.insert(place, NOW - DAY)
    viewed = {**HISTORY, "history": items, "history_times": times}
    shown = recommended(client, **viewed, among="all", k=60, explain=True)["explanation"]["items"]
    (uses,) = (one["uses"] for one in shown if one["id"] == 101)
    # The period is that of purchases.
    assert uses == {**expected[101], "times": 4, "kinds": {"purchase": 3, "view": 1}}
    for one in answer["items"]:
        parts = explained[one["id"]]["score_parts"]
        assert ("repeat" in parts) == ("towers" in parts) == (one["id"] in AGAIN)
        if "repeat" in parts:
            assert one["score"] == pytest.approx(parts["towers"] + parts["repeat"], rel=1e-5, abs=1e-5)
    untimed = recommended(client, history=[101, 102, 101], among="again", explain=True)
    uses = {one["id"]: one["uses"] for one in untimed["explanation"]["items"]}
    assert uses[101] == {"times": 2, "kinds": {}, "every_days": None, "last_days_ago": None}
