"""Pages, minimum scores, diversity, caps and explanations, over HTTP."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from turret.tower.bundle.bundle import Bundle

Recommend = Callable[..., dict[str, Any]]


def ids(answer: dict[str, Any]) -> list[int]:
    return [item["id"] for item in answer["items"]]


@pytest.mark.parametrize("body", [{"history": [101, 102]}, {"history": [101], "exclude": [110]}, {}])
def test_pages_are_the_whole_answer_in_pieces(recommend: Recommend, body: dict[str, Any]) -> None:
    whole = recommend(**body, k=1000)
    assert "cursor" not in whole
    pages: list[int] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        page = recommend(**body, **cursor, k=7)
        pages += ids(page)
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert pages == ids(whole)
    assert page["exhausted"] is True


def test_events_between_two_pages_do_not_move_them(fresh_client: TestClient, recommend: Recommend) -> None:
    first = [{"event_id": n, "user_id": 7, "item_id": 101 + n, "time": 1000 + n} for n in range(3)]
    fresh_client.post("/v1/events", json={"events": first})
    whole = ids(recommend(user_id=7, k=20))
    page = recommend(user_id=7, k=10)
    later = {"event_id": "later", "user_id": 7, "item_id": 140, "time": 4_000_000_000}
    fresh_client.post("/v1/events", json={"events": [later]})
    assert ids(page) + ids(recommend(user_id=7, k=10, cursor=page["cursor"])) == whole
    assert ids(recommend(user_id=7, k=20)) != whole


def test_a_cursor_of_another_version_is_refused_in_words(fresh_client: TestClient) -> None:
    answer = fresh_client.post("/v1/recommend", json={"history": [101], "cursor": "v2~0~a~3~3f800000"})
    assert answer.status_code == 409
    assert answer.json()["error"]["field"] == "cursor"
    assert "v2" in answer.json()["error"]["message"]


def test_a_minimum_score_cuts_the_answer_off(recommend: Recommend) -> None:
    scores = [item["score"] for item in recommend(history=[101], k=10)["items"]]
    answer = recommend(history=[101], k=10, min_score=scores[3])
    assert [item["score"] for item in answer["items"]] == scores[:4]
    assert answer["exhausted"] is True


def test_a_minimum_score_says_nothing_of_popular_items(recommend: Recommend) -> None:
    assert len(recommend(k=3, min_score=1e6)["items"]) == 3


def test_a_cap_limits_the_items_of_a_value(recommend: Recommend) -> None:
    """Every item of this bundle is a drama."""
    answer = recommend(history=[101], k=5, cap={"genres": 2})
    assert (len(ids(answer)), answer["exhausted"]) == (2, True)
    assert ids(answer) == ids(recommend(history=[101], k=2))


def test_a_cap_on_an_unknown_field_is_refused(fresh_client: TestClient) -> None:
    answer = fresh_client.post("/v1/recommend", json={"history": [101], "cap": {"brand": 1}})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "cap.brand"
    assert "genres" in answer.json()["error"]["message"]


def test_diversity_takes_other_items_and_begins_with_the_best(recommend: Recommend) -> None:
    plain, diverse = ids(recommend(history=[101])), ids(recommend(history=[101], diversity=0.6))
    assert plain[0] == diverse[0]
    assert plain != diverse
    assert len(set(diverse)) == 10
    assert "cursor" not in recommend(history=[101], diversity=0.6)


def test_an_explanation_names_what_pulls_items_up(recommend: Recommend, bundles: Any) -> None:
    answer = recommend(history=[101, 105, 111], k=3, explain=True)
    explanation = answer["explanation"]
    bundle = Bundle.open(bundles / "v1")
    for item, shown in zip(explanation["items"], answer["items"], strict=True):
        assert item["id"] == shown["id"]
        parts = item["score_parts"]
        assert parts["inner_product"] / parts["temperature"] == pytest.approx(shown["score"], rel=1e-5)
        for pull in item["pulled_by"]:
            left = [one for one in (101, 105, 111) if one != pull["id"]]
            rows, _ = bundle.vocabulary.known_rows(left)
            (vector,) = bundle.encoder.encode([rows], [{}])
            row = bundle.vocabulary.row(item["id"])
            without = float(np.array(bundle.vectors[row]) @ vector) / parts["temperature"]
            assert pull["change"] == pytest.approx(shown["score"] - without, rel=1e-3, abs=1e-5)
            assert pull["change"] > 0
    assert any(item["pulled_by"] for item in explanation["items"])
    assert explanation["plan"]["kind"] in {"index", "over_fetch", "subset", "selector"}
    assert {"history", "encode", "search"} <= set(explanation["milliseconds"])


def test_an_explanation_of_popular_items_has_the_plan_alone(recommend: Recommend) -> None:
    explanation = recommend(explain=True)["explanation"]
    assert explanation["plan"]["kind"] == "popularity"
    assert "items" not in explanation


def test_what_is_left_of_one_item_pulls_nothing(recommend: Recommend) -> None:
    (item,) = recommend(history=[101], k=1, explain=True)["explanation"]["items"]
    assert item["pulled_by"] == []


def test_a_batch_can_be_explained_too(fresh_client: TestClient) -> None:
    requests = [{"history": [101, 102], "explain": True, "k": 2}, {"history": [101], "k": 2}]
    first, second = fresh_client.post("/v1/recommend/batch", json={"requests": requests}).json()["results"]
    assert len(first["explanation"]["items"]) == 2
    assert "explanation" not in second
