"""`/v1/recommend`: sources, features, pages, choices, explanations, times, and the repeat term."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from tests.conftest import USER_FEATURES, contents, plain_ranking
from tests.support.repeats import ranking, repeating
from tests.support.service_app import ids, post_events, recommended, serving
from turret.data.answers.form import time_of
from turret.service.overlay.fresh import FreshItems, Sent
from turret.service.overlay.persistent import GrowingArray, LayeredMap
from turret.service.ranking.answers import ids_of
from turret.service.ranking.batches import recommend
from turret.service.ranking.query import NO_HISTORY, make_query
from turret.service.schemas.requests import RecommendRequest
from turret.service.versions.follower import Follower
from turret.service.versions.holder import LoadedModel
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.retrieval import Retriever

POPULAR = list(range(100, 160))  # by the bundle's popularity
HOUR = 3600
MONDAY = 4 * 24 * HOUR  # of the first week of 1970, which began on a Thursday


def batch(client: TestClient, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    answer = client.post("/v1/recommend/batch", json={"requests": requests})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_a_history_is_answered_by_the_towers(client: TestClient) -> None:
    rows, scores = plain_ranking(contents().item_vectors, [1, 2], 0.5, 3)
    answer = recommended(client, history=[101, 102], k=3)
    assert (answer["version"], answer["degraded"]) == ("v1", [])
    assert ids(answer) == [100 + row for row in rows.tolist()]
    assert [item["score"] for item in answer["items"]] == pytest.approx(scores.tolist(), rel=1e-5)
    assert {item["source"] for item in answer["items"]} == {"towers"}
    assert answer["items"][0]["fields"] == {"title": f"Item {ids(answer)[0]}", "genres": ["drama"]}
    assert len(ids(recommended(client, history=[101]))) == 10


@pytest.mark.parametrize("body", [{}, {"user_id": "nobody"}, {"history": []}, {"user_id": 1, "history": []}])
def test_without_a_known_history_popular_items_are_given(client: TestClient, body: dict[str, Any]) -> None:
    answer = recommended(client, **body, k=4)
    assert ids(answer) == POPULAR[:4]
    assert {item["source"] for item in answer["items"]} == {"popular"}
    assert [item["score"] for item in answer["items"]] == [60, 59, 58, 57]


@pytest.mark.fault(21)
def test_unknown_items_are_skipped_and_named_once(client: TestClient) -> None:
    answer = recommended(client, history=[101, "nothing", "102"], k=5)
    assert answer["unknown_items"] == ["nothing"]
    assert ids(answer) == ids(recommended(client, history=[101, 102], k=5))
    assert recommended(client, history=["x", 5, "x"])["unknown_items"] == ["x", 5]


def test_seen_and_excluded_items_are_left_out(client: TestClient) -> None:
    assert 101 not in ids(recommended(client, history=[101], k=59))
    assert ids(recommended(client, history=[101], k=1, exclude_seen=False)) == [101]
    first, second = ids(recommended(client, history=[101], k=2))
    assert ids(recommended(client, history=[101], k=1, exclude=[first, "unknown"])) == [second]
    assert ids(recommended(client, k=2, exclude=["100", 102])) == [101, 103]


def test_a_version_for_repeat_consumption_keeps_seen_items_unless_told_otherwise(tmp_path: Path) -> None:
    publish(tmp_path, contents(exclude_seen=False))
    one: dict[str, Any] = {"history": [101], "k": 1}
    with serving(tmp_path) as client:
        assert ids(recommended(client, **one)) == ids(recommended(client, **one, exclude_seen=None)) == [101]
        results = batch(client, one, {**one, "exclude_seen": True})
        assert [101 in ids(answer) for answer in results] == [True, False]


@pytest.mark.fault(20, 21)
def test_fewer_than_asked_for_say_that_nothing_is_left(client: TestClient) -> None:
    answer = recommended(client, history=[101], k=1000)
    assert (len(set(ids(answer))), answer["exhausted"]) == (59, True)
    assert "exhausted" not in recommended(client, history=[101], k=59)
    everything = recommended(client, history=POPULAR, k=5)
    assert (everything["items"], everything["exhausted"]) == ([], True)


@pytest.mark.fault(22)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"title": {"equals": "Item 107"}}, [107]),
        ({"title": {"equals": "Item 107", "none_of": ["Item 107"]}}, []),
        ({"title": {"gt": "Item 110", "lt": "Item 105"}}, []),
        ({"title": {"any_of": []}}, []),
        ({"any": []}, []),
    ],
)
def test_a_filter_of_one_item_gives_it_and_of_none_nothing(
    client: TestClient, wanted: dict[str, Any], expected: list[int]
) -> None:
    for more in ({"history": [101]}, {}, {"history": [101], "diversity": 0.5}):
        answer = recommended(client, **more, filter=wanted, k=10)
        assert (ids(answer), answer["exhausted"], "cursor" in answer) == (expected, True, False)


def test_a_given_history_counts_instead_of_the_stored_one(fresh_client: TestClient) -> None:
    def asked(**body: Any) -> list[Any]:
        return ids(recommended(fresh_client, **body))

    post_events(fresh_client, {"event_id": 1, "user_id": 7, "item_id": 130})
    assert asked(user_id=7, history=[101]) == asked(history=[101])
    assert asked(user_id=7) == asked(user_id="7") == asked(history=[130])
    assert asked(user_id=7, history=[], k=60) == POPULAR


def test_a_batch_answers_as_single_calls_do(client: TestClient) -> None:
    requests: list[dict[str, Any]] = [
        {"history": [101, 102], "k": 3},
        {"user_id": "nobody", "k": 2},
        {"history": ["x"], "k": 1},
        {"history": [103], "k": 1000, "exclude": [100]},
    ]
    for request, result in zip(requests, batch(client, *requests), strict=True):
        alone = recommended(client, **request)
        for answer in (alone, result):
            answer.pop("cursor", None)  # which has the moment of the answer
        result.pop("answer_id")
        assert result == alone


def test_every_answer_has_an_id_of_its_own_that_begins_with_its_time(client: TestClient) -> None:
    """Also where a client repeats the id of its request, and the requests of a batch are equal."""
    sent: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/recommend", {"history": [101]}),
        ("POST", "/v1/recommend/batch", {"requests": [{"history": [101]}] * 3}),
        ("POST", "/v1/items/101/similar", {}),
        ("GET", "/v1/items/101/similar", {}),
        ("POST", "/v1/popular", {}),
    ]
    names: list[str] = []
    first = time.time_ns() // 1_000_000
    for method, path, body in sent * 2:
        content = body if method == "POST" else None
        answer = client.request(method, path, headers={"X-Request-ID": "again"}, json=content)
        assert answer.status_code == 200, answer.text
        names += [each["answer_id"] for each in answer.json().get("results", [answer.json()])]
    last = time.time_ns() // 1_000_000
    assert len(set(names)) == 14
    assert [time_of(name) for name in names] == sorted(time_of(name) for name in names)
    assert first <= time_of(names[0]) <= time_of(names[-1]) <= last
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_a_process_that_was_stopped_reads_the_record_before_it_answers(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any call, as it may have missed an activation meanwhile."""
    follower: Follower = client.app.state.components.follower  # type: ignore[attr-defined]
    read: list[int] = []

    async def refresh() -> None:
        read.append(1)

    monkeypatch.setattr(Follower, "was_stopped", property(lambda _: not read))
    monkeypatch.setattr(follower, "refresh", refresh)
    assert client.get("/v1/version").status_code == 200
    assert read == [1]


# ---- Features of users


@pytest.fixture(scope="module")
def featured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose items have texts as ids and whose user tower reads features."""
    root = tmp_path_factory.mktemp("featured")
    publish(root, contents(ids=[f"i{number}" for number in range(30)], features=USER_FEATURES))
    with serving(root) as client:
        yield client


def test_features_change_the_answer(featured: TestClient) -> None:
    def ask(**features: object) -> list[Any]:
        return ids(recommended(featured, history=["i1", "i2"], features=features))

    assert ask() == ask(country=None) == ask(country="unknown")
    assert ask() != ask(age=90)
    assert ask(likes=["drama"]) != ask(likes=["comedy"])


# ---- Pages, minimum scores, diversity, caps and explanations


@pytest.mark.parametrize("body", [{"history": [101, 102]}, {"history": [101], "exclude": [110]}, {}])
def test_pages_are_the_whole_answer_in_pieces(client: TestClient, body: dict[str, Any]) -> None:
    whole = recommended(client, **body, k=1000)
    assert "cursor" not in whole
    page = recommended(client, **body, k=7)
    pages = ids(page)
    while "cursor" in page:
        page = recommended(client, **body, k=7, cursor=page["cursor"])
        pages += ids(page)
        assert len(pages) <= 60
    assert pages == ids(whole)
    assert page["exhausted"] is True


def test_events_between_two_pages_do_not_move_them(fresh_client: TestClient) -> None:
    first = [{"event_id": n, "user_id": 7, "item_id": 101 + n, "time": 1000 + n} for n in range(3)]
    post_events(fresh_client, *first)
    whole = ids(recommended(fresh_client, user_id=7, k=20))
    page = recommended(fresh_client, user_id=7, k=10)
    post_events(fresh_client, {"event_id": "later", "user_id": 7, "item_id": 140, "time": 4_000_000_000})
    after = recommended(fresh_client, user_id=7, k=10, cursor=page["cursor"])
    assert ids(page) + ids(after) == whole
    assert ids(recommended(fresh_client, user_id=7, k=20)) != whole


def without_item(body: dict[str, Any], item: int) -> dict[str, Any]:
    """The body of a request without any event of an item."""
    stay = [one != item for one in body["history"]]
    names = [name for name in ("history", "history_times") if name in body]
    return {**body, **{name: list(compress(body[name], stay)) for name in names}}


def falls(client: TestClient, body: dict[str, Any]) -> dict[int, dict[int, float]]:
    """For each item of the answer, how far its score falls without one of the history, by new requests."""
    scores = {one["id"]: one["score"] for one in recommended(client, **body)["items"]}
    falls: dict[int, dict[int, float]] = {item: {} for item in scores}
    for left in dict.fromkeys(body["history"]):
        shorter = {**without_item(body, left), "k": 60, "exclude_seen": False}
        for one in recommended(client, **shorter)["items"]:
            if (fall := scores.get(one["id"], -np.inf) - one["score"]) > 1e-6:
                falls[one["id"]][left] = fall
    return falls


def assert_pulls(client: TestClient, body: dict[str, Any]) -> None:
    """The three items that are named are those without which new requests have the lowest scores."""
    found = recommended(client, **body, explain=True)["explanation"]["items"]
    expected = falls(client, body)
    assert [one["id"] for one in found] == list(expected)
    for one in found:
        named = {pull["id"]: pull["change"] for pull in one["pulled_by"] if pull["change"] > 1e-6}
        strongest = sorted(expected[one["id"]].items(), key=lambda fall: -fall[1])[:3]
        assert list(named) == [item for item, _ in strongest]
        assert list(named.values()) == pytest.approx([fall for _, fall in strongest], abs=1e-5)
    assert any(one["pulled_by"] for one in found)


def test_an_explanation_names_the_items_without_which_a_score_falls_most(client: TestClient) -> None:
    """Seven items for a tower that reads five: without a newer one, it reads an older one again."""
    assert_pulls(client, {"history": [103, 120, 101, 105, 101, 111, 130], "k": 5})


# ---- Times


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose tower adds hours of gaps to the first coordinate, and of clocks to the second."""
    root = tmp_path_factory.mktemp("timed")
    publish(root, contents(times=True))
    with serving(root) as client:
        yield client


def scored(client: TestClient, **body: Any) -> list[tuple[int, Any]]:
    return [(item["id"], item["score"]) for item in recommended(client, **{"k": 5, **body})["items"]]


def expected(rows: list[int], gaps: float, clocks: float) -> list[tuple[int, Any]]:
    """The five best items outside the history for these sums of hours."""
    vectors: NDArray[np.float32] = contents().item_vectors
    state = vectors[rows].astype(np.float64).mean(axis=0)
    state[:2] += gaps, clocks
    scores = vectors @ state / np.linalg.norm(state) / 0.5
    best = [row for row in np.argsort(-scores, kind="stable").tolist() if row not in rows][:5]
    return [(100 + row, pytest.approx(float(scores[row]), rel=1e-4)) for row in best]


def test_the_times_of_a_history_and_of_the_request_are_read(timed: TestClient) -> None:
    """As seconds or as text: an hour until the second item, half an hour until the request."""
    wanted = expected([1, 2], 1.5, (MONDAY * 2 + 2.5 * HOUR) / HOUR)
    body = {"history": [101, 102], "history_times": [MONDAY, MONDAY + HOUR]}
    assert scored(timed, **body, at=MONDAY + 1.5 * HOUR) == wanted
    texts = {"history": [101, 102], "history_times": ["1970-01-05T00:00Z", "1970-01-05T01:00Z"]}
    assert scored(timed, **texts, at="1970-01-05T01:30:00") == wanted


def test_the_request_comes_now_if_it_does_not_say_when(timed: TestClient) -> None:
    """And an event that another clock puts into the future is just over."""
    now = time.time()
    body: dict[str, Any] = {"history": [101, 102], "history_times": [now - 7200, now - 3600]}
    by_now = dict(scored(timed, **body))
    assert by_now == pytest.approx(dict(scored(timed, **body, at=now)), rel=0.01)
    assert by_now != pytest.approx(dict(scored(timed, **body, at=now + 90 * 86_400)), rel=0.01)
    recommended(timed, history=[101], history_times=[now + 5])


def test_a_version_that_reads_no_times_leaves_them_alone(client: TestClient) -> None:
    """So that a client may send them whatever is live."""
    body = {"history": [101, 102], "history_times": [0, HOUR], "at": MONDAY}
    assert scored(client, **body) == scored(client, history=[101, 102])


# ---- A version with a repeat term: used items are scored exactly, with their gain


NOW = 1_700_000_000
HISTORY = [159, 102, 130, 101, 102, 108, 108]
TIMES = [NOW - days * 86_400 for days in (60, 40, 30, 20, 10, 3, 3)]
ASKED: dict[str, Any] = {"history": HISTORY, "history_times": TIMES, "at": NOW}


@pytest.fixture(scope="module")
def repeats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("repeats")
    publish(root, repeating())
    with serving(root) as client:
        yield client


def ranked(times: list[float] | None = None, asked: float = 0.0) -> list[int]:
    rows, _ = ranking(repeating(), [item - 100 for item in HISTORY], times, asked)
    return [100 + row for row in rows.tolist()]


TIMED = ranked([float(time) for time in TIMES], NOW)


def test_used_items_are_ranked_by_times_where_they_are_known(repeats: TestClient) -> None:
    assert ids(recommended(repeats, **ASKED, k=60)) == TIMED
    assert ids(recommended(repeats, history=HISTORY, k=60)) == ranked() != TIMED


def test_stored_events_are_ranked_as_given_ones(repeats: TestClient) -> None:
    events = [
        {"event_id": place, "user_id": 7, "item_id": item, "time": time}
        for place, (item, time) in enumerate(zip(HISTORY, TIMES, strict=True))
    ]
    post_events(repeats, *events)
    assert ids(recommended(repeats, user_id=7, at=NOW, k=60)) == TIMED
    batch = {"requests": [{**ASKED, "k": 60}, {"user_id": 7, "at": NOW, "k": 5}, {"history": [101]}]}
    first, second, _ = repeats.post("/v1/recommend/batch", json=batch).json()["results"]
    assert (ids(first), ids(second)) == (TIMED, TIMED[:5])


def test_conditions_apply_to_used_items(repeats: TestClient) -> None:
    out = [108, 130, TIMED[0]]
    assert ids(recommended(repeats, **ASKED, exclude=out, k=60)) == [one for one in TIMED if one not in out]
    unseen = recommended(repeats, **ASKED, exclude_seen=True, k=60)
    assert ids(unseen) == [one for one in TIMED if one not in HISTORY]
    allowed = {"title": {"any_of": [f"Item {one}" for one in (101, 102, 108, 140, 141)]}}
    some = recommended(repeats, **ASKED, filter=allowed, k=60)
    assert ids(some) == [one for one in TIMED if one in (101, 102, 108, 140, 141)]
    least = recommended(repeats, **ASKED, k=60)["items"][6]["score"]
    assert ids(recommended(repeats, **ASKED, min_score=least, k=60)) == TIMED[:7]
    assert len(ids(recommended(repeats, **ASKED, cap={"genres": 2}, k=5))) == 2


def test_an_explanation_says_what_a_used_item_gains(repeats: TestClient) -> None:
    answer = recommended(repeats, **ASKED, k=20, explain=True)
    parts = [item["score_parts"] for item in answer["explanation"]["items"]]
    assert {item["id"] for item, one in zip(answer["items"], parts, strict=True) if "repeat" in one} == {
        one for one in TIMED[:20] if one in HISTORY
    }
    for item, one in zip(answer["items"], parts, strict=True):
        by_towers = one["inner_product"] / one["temperature"]
        assert item["score"] == pytest.approx(by_towers + one.get("repeat", 0.0), rel=1e-5, abs=1e-5)


def test_an_explanation_names_the_items_by_their_whole_part_in_a_score(repeats: TestClient) -> None:
    """With what items gain as items of the history, the item itself among them."""
    assert_pulls(repeats, {**ASKED, "k": 20})
    assert_pulls(repeats, {"history": HISTORY, "k": 20})
    found = recommended(repeats, **ASKED, k=20, explain=True)["explanation"]["items"]
    assert any(one["id"] in [pull["id"] for pull in one["pulled_by"]] for one in found)


def test_an_item_that_was_put_after_the_export_gains_too(tmp_path: Path) -> None:
    contents = repeating()
    bundle = Bundle.open(publish(tmp_path, contents))
    new = np.array([[0.6, 0.8, *[0.0] * 6]], dtype=np.float32)
    served, places, sent = np.array([True]), LayeredMap({"999": 0}), LayeredMap({0: Sent("999", b"{}")})
    fresh = FreshItems(bundle.vocabulary, GrowingArray(new), served, places, sent)
    history = [999, 105, 999, 107]
    query = make_query(RecommendRequest(history=history, k=61), NO_HISTORY, (), NOW * 1000)
    model = LoadedModel(bundle, Retriever(bundle), datetime.now(UTC))
    (answer,) = recommend(model, replace(fresh, added=fresh.added.changed({0: b"{}"})), [query])
    both = replace(contents, item_vectors=np.vstack([contents.item_vectors, new]))
    rows, _ = ranking(both, [60, 5, 60, 7])
    assert ids_of(answer) == [999 if row == 60 else 100 + row for row in rows.tolist()]


def test_vectors_give_the_scores_of_an_answer(client: TestClient) -> None:
    requests: list[dict[str, Any]] = [{"history": [101, 110]}, {"history": [120]}, {"history": []}]
    body: dict[str, Any] = {"items": [*range(100, 160), 7, "105"], "requests": requests}
    answer = client.post("/v1/vectors", json=body).json()
    assert [item["id"] for item in answer["items"]] == body["items"]
    assert (answer["items"][60]["vector"], answer["requests"][2]) == (None, None)
    assert answer["items"][61]["vector"] == answer["items"][5]["vector"]
    vectors = {item["id"]: np.array(item["vector"]) for item in answer["items"][:60]}
    for request, user in zip(requests[:2], answer["requests"], strict=False):
        for item in recommended(client, **request, k=60)["items"]:
            product = float(vectors[item["id"]] @ np.array(user)) / answer["temperature"]
            assert item["score"] == pytest.approx(product, abs=1e-5)
    assert answer["normalised"] is True
    refused = client.post("/v1/vectors", json={"requests": [{}, {"filter": {"x": 1}}]}).json()["error"]
    assert refused["field"] == "requests.1.filter.x"
