import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from turret.data.features import Feature
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish

Recommend = Callable[..., dict[str, Any]]
POPULAR = list(range(100, 160))  # by the bundle's popularity


def ids(answer: dict[str, Any]) -> list[int | str]:
    return [item["id"] for item in answer["items"]]


def test_a_history_is_answered_by_the_towers(
    recommend: Recommend,
    make_contents: Callable[..., BundleContents],
    oracle: Callable[..., tuple[NDArray[np.int64], NDArray[np.float32]]],
) -> None:
    rows, scores = oracle(make_contents().item_vectors, [1, 2], 0.5, 3)
    answer = recommend(history=[101, 102], k=3)
    assert answer["version"] == "v1"
    assert answer["degraded"] == []
    assert ids(answer) == [100 + row for row in rows.tolist()]
    assert [item["score"] for item in answer["items"]] == pytest.approx(scores.tolist(), rel=1e-5)
    assert {item["source"] for item in answer["items"]} == {"towers"}
    assert answer["items"][0]["fields"] == {"title": f"Item {ids(answer)[0]}", "genres": ["drama"]}
    assert set(answer) == {"version", "items", "degraded", "cursor"}


def test_ten_are_given_unless_said_otherwise(recommend: Recommend) -> None:
    assert len(ids(recommend(history=[101]))) == 10


@pytest.mark.parametrize("body", [{}, {"user_id": "nobody"}, {"history": []}, {"user_id": 1, "history": []}])
def test_without_a_known_history_popular_items_are_given(recommend: Recommend, body: dict[str, Any]) -> None:
    answer = recommend(**body, k=4)
    assert ids(answer) == POPULAR[:4]
    assert {item["source"] for item in answer["items"]} == {"popular"}
    assert [item["score"] for item in answer["items"]] == [60, 59, 58, 57]


def test_a_history_of_unknown_items_is_popular_items_and_names_them_once(recommend: Recommend) -> None:
    answer = recommend(history=["x", 5, "x"], k=2)
    assert ids(answer) == POPULAR[:2]
    assert answer["unknown_items"] == ["x", 5]


def test_unknown_items_are_skipped_and_named(recommend: Recommend) -> None:
    answer = recommend(history=[101, "nothing", "102"], k=5)
    assert answer["unknown_items"] == ["nothing"]
    assert ids(answer) == ids(recommend(history=[101, 102], k=5))


def test_seen_items_are_left_out_unless_wanted(recommend: Recommend) -> None:
    assert 101 not in ids(recommend(history=[101], k=59))
    assert ids(recommend(history=[101], k=1, exclude_seen=False)) == [101]


def test_a_version_for_repeat_consumption_keeps_seen_items_unless_told_otherwise(
    tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(tmp_path, replace(make_contents(), exclude_seen=False))
    with TestClient(create_app(Settings(bundles=tmp_path, store="memory://"))) as client:
        assert client.get("/v1/version").json()["exclude_seen"] is False
        bodies: list[dict[str, Any]] = [{}, {"exclude_seen": None}, {"exclude_seen": False}]
        for body in bodies:
            answer = client.post("/v1/recommend", json={"history": [101], "k": 1, **body}).json()
            assert ids(answer) == [101]
        one = {"history": [101], "k": 1}
        batch = client.post("/v1/recommend/batch", json={"requests": [one, {**one, "exclude_seen": True}]})
        assert [101 in ids(answer) for answer in batch.json()["results"]] == [True, False]


def test_excluded_items_are_left_out_of_both_sources(recommend: Recommend) -> None:
    first, second = ids(recommend(history=[101], k=2))
    assert ids(recommend(history=[101], k=1, exclude=[first, "unknown"])) == [second]
    assert ids(recommend(k=2, exclude=["100", 102])) == [101, 103]


def test_fewer_than_asked_for_say_that_nothing_is_left(recommend: Recommend) -> None:
    answer = recommend(history=[101], k=1000)
    assert (len(ids(answer)), len(set(ids(answer)))) == (59, 59)
    assert answer["exhausted"] is True
    assert "exhausted" not in recommend(history=[101], k=59)
    everything = recommend(history=POPULAR, k=5)
    assert (everything["items"], everything["exhausted"]) == ([], True)
    assert len(ids(recommend(k=1000))) == 60


def test_a_given_history_counts_instead_of_the_stored_one(
    fresh_client: TestClient, recommend: Recommend
) -> None:
    event = {"event_id": 1, "user_id": 7, "item_id": 130}
    fresh_client.post("/v1/events", json={"events": [event]})
    assert ids(recommend(user_id=7, history=[101])) == ids(recommend(history=[101]))
    assert ids(recommend(user_id=7)) == ids(recommend(user_id="7")) == ids(recommend(history=[130]))
    assert ids(recommend(user_id=7, history=[], k=60)) == POPULAR


def test_a_history_of_a_thousand_is_read_and_one_more_is_not(
    fresh_client: TestClient, recommend: Recommend
) -> None:
    recommend(history=[101] * 1000)
    answer = fresh_client.post("/v1/recommend", json={"history": [101] * 1001})
    assert answer.status_code == 422
    assert "the newest 1000" in answer.json()["error"]["message"]


def test_a_batch_answers_as_single_calls_do(fresh_client: TestClient, recommend: Recommend) -> None:
    requests: list[dict[str, Any]] = [
        {"history": [101, 102], "k": 3},
        {"user_id": "nobody", "k": 2},
        {"history": ["x"], "k": 1},
        {"history": [103], "k": 1000, "exclude": [100]},
    ]
    answer = fresh_client.post("/v1/recommend/batch", json={"requests": requests})
    assert answer.status_code == 200
    for request, result in zip(requests, answer.json()["results"], strict=True):
        alone = recommend(**request)
        assert ids(result) == ids(alone)
        others = set(result) - {"items", "cursor"}  # which tells the moment where a stored history counts
        assert {name: result[name] for name in others} == {name: alone[name] for name in others}
        assert set(alone) == set(result)


def test_a_fault_in_a_batch_is_named_with_its_place(fresh_client: TestClient) -> None:
    requests = [{"k": 1}, {"history": [101], "features": {"age": 3}}]
    answer = fresh_client.post("/v1/recommend/batch", json={"requests": requests})
    assert answer.json()["error"]["field"] == "requests.1.features.age"
    answer = fresh_client.post("/v1/recommend/batch", json={"requests": [{"k": 1}, {"k": 0}]})
    assert answer.json()["error"]["field"] == "requests.1.k"


@pytest.mark.parametrize("wrong", [{"cursor": "nonsense"}, {"min_version": "never"}, {"filter": {"x": 1}}])
def test_whatever_is_refused_in_a_batch_is_named_with_its_place(
    fresh_client: TestClient, wrong: dict[str, Any]
) -> None:
    answer = fresh_client.post("/v1/recommend/batch", json={"requests": [{"k": 1}, {"k": 1, **wrong}]})
    assert answer.status_code in (409, 422)
    assert answer.json()["error"]["field"].startswith("requests.1.")


@pytest.fixture
def featured(
    tmp_path: Path, make_contents: Callable[..., BundleContents], user_features: tuple[Feature, ...]
) -> Iterator[TestClient]:
    """A service whose items have texts as ids and whose user tower reads features."""
    root = tmp_path / "featured"
    publish(root, make_contents(ids=[f"i{number}" for number in range(30)], features=user_features))
    app = create_app(Settings(bundles=root, store="memory://"))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def test_features_change_the_answer(featured: TestClient) -> None:
    def ask(**features: object) -> list[int | str]:
        body = {"history": ["i1", "i2"], "features": features}
        return ids(featured.post("/v1/recommend", json=body).json())

    assert ask() == ask(country=None) == ask(country="unknown")
    assert ask() != ask(age=90)
    assert ask(likes=["drama"]) != ask(likes=["comedy"])


@pytest.mark.parametrize("history", [["i1"], [], ["unknown"]])
def test_features_are_checked_also_where_popular_items_are_given(
    featured: TestClient, history: list[str]
) -> None:
    answer = featured.post("/v1/recommend", json={"history": history, "features": {"age": "old"}})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "features.age"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
FIELDS = ["user_id", "history", "features", "k", "exclude_seen", "exclude", "requests", "events", "version"]
FIELDS += ["history_times", "at"]
SOMETHING_LIKE_A_BODY = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), ANYTHING, max_size=5)
EVENT = st.fixed_dictionaries(dict.fromkeys(("event_id", "user_id", "item_id", "time", "kind"), ANYTHING))


@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    path=st.sampled_from(["/v1/recommend", "/v1/recommend/batch", "/v1/events", "/admin/activate"]),
    body=SOMETHING_LIKE_A_BODY
    | ANYTHING
    | st.builds(lambda one: {"requests": [one]}, SOMETHING_LIKE_A_BODY)
    | st.builds(lambda one: {"events": [one]}, EVENT)
    | st.builds(lambda value: {"history": ["i1"], "features": {"age": value}}, ANYTHING)
    | st.builds(lambda value: {"history": ["i1"], "features": {"likes": value, "country": value}}, ANYTHING),
)
def test_whatever_is_sent_the_service_is_never_at_fault(
    featured: TestClient, path: str, body: object
) -> None:
    """Python's json writes NaN and lone surrogates too."""
    answer = featured.post(path, content=json.dumps(body))
    assert answer.status_code < 500
    if answer.status_code != 200:
        assert set(answer.json()) == {"error"}
        assert set(answer.json()["error"]) == {"field", "value", "message"}
        assert answer.json()["error"]["message"]


def test_a_whole_number_may_be_written_with_a_point(recommend: Recommend) -> None:
    """JSON has one kind of numbers, and so has its schema."""
    assert recommend(history=[101.0, 102], k=5.0) == recommend(history=[101, 102], k=5)
