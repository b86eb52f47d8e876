from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from turret.service.errors import ItemsUnavailableError
from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import publish

Put = Callable[..., httpx2.Response]
HERE = contents().item_vectors[0]  # where item 100 is
KEY = {"Authorization": "Bearer a-key-of-sixteen"}


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`v1` with an item tower, and `later`, other vectors and a tower beside them; `ids` has none."""
    root = tmp_path_factory.mktemp("towers")
    publish(root, with_item_tower(contents()))
    publish(root, with_item_tower(contents("later", ids=[*range(100, 160), 900], seed=1)))
    publish(root, contents("ids"))
    return root


@pytest.fixture
def settings(towers: Path) -> Settings:
    return Settings.model_validate(
        {
            "bundles": towers,
            "store": "memory://",
            "admin_key": "a-key-of-sixteen",
            "admin_port": None,
            "access_log": False,
            "fresh_items_limit": 3,
        }
    )


@pytest.fixture
def fresh_client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client
        client.post("/admin/activate", json={"version": "v1"}, headers=KEY)


@pytest.fixture
def put(fresh_client: TestClient) -> Put:
    """Put an item where item 100 is."""

    def make(item: object = 900, features: object = None, **body: Any) -> httpx2.Response:
        features = placed(HERE) if features is None else features
        return fresh_client.put(f"/v1/items/{item}", json={"features": features, **body})

    return make


def ids(answer: httpx2.Response) -> list[object]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def activate(client: TestClient, version: str) -> None:
    answer = client.post("/admin/activate", json={"version": version, "force": True}, headers=KEY)
    assert answer.status_code == 200, answer.text


def asked(client: TestClient, *history: object, **body: Any) -> list[object]:
    return ids(client.post("/v1/recommend", json={"history": history, **body}))


def test_a_fresh_item_is_in_the_next_answer(fresh_client: TestClient, put: Put) -> None:
    """Where its features put it: beside the item whose vector it has, and behind it where they tie."""
    assert put(fields={"title": "New"}).json() == {"version": "v1", "id": 900, "vector": "features"}
    answer = fresh_client.post("/v1/recommend", json={"history": [100], "k": 3}).json()
    first = answer["items"][0]
    assert (first["id"], first["source"], first["fields"]) == (900, "fresh", {"title": "New"})
    assert first["score"] == pytest.approx(1 / 0.5, abs=1e-5)
    assert asked(fresh_client, 100, exclude_seen=False, k=2) == [100, 900]


def test_a_fresh_item_counts_in_a_history(fresh_client: TestClient, put: Put) -> None:
    put()
    assert asked(fresh_client, 900, k=59)[0] == 100
    by_both = fresh_client.post("/v1/recommend", json={"history": [900], "k": 5}).json()
    by_known = fresh_client.post("/v1/recommend", json={"history": [100], "k": 6}).json()
    found = {item["id"]: item["score"] for item in by_known["items"]}
    for item in by_both["items"][1:]:
        assert item["score"] == pytest.approx(found[item["id"]], abs=1e-4)
    assert 900 not in asked(fresh_client, 900, k=59)
    assert 900 not in asked(fresh_client, 101, exclude=[900], k=60)
    assert "unknown_items" not in by_both


def test_similar_works_from_it_and_to_it(fresh_client: TestClient, put: Put) -> None:
    put()
    assert ids(fresh_client.get("/v1/items/900/similar?k=1")) == [100]
    assert ids(fresh_client.get("/v1/items/100/similar?k=1")) == [900]
    assert len(ids(fresh_client.get("/v1/items/900/similar?k=100"))) == 60


def test_popular_items_end_with_fresh_ones(fresh_client: TestClient, put: Put) -> None:
    put()
    assert ids(fresh_client.post("/v1/recommend", json={"k": 61})) == [*range(100, 160), 900]


def test_fields_are_the_features_unless_they_are_given(fresh_client: TestClient, put: Put) -> None:
    put(features={**placed(HERE), "kind": "book"})
    (item,) = fresh_client.post("/v1/recommend", json={"history": [100], "k": 1}).json()["items"]
    assert item["fields"]["kind"] == "book"
    put(fields={})
    (item,) = fresh_client.post("/v1/recommend", json={"history": [100], "k": 1}).json()["items"]
    assert item["fields"] == {}


def test_a_known_item_gets_other_fields_and_keeps_its_vector(fresh_client: TestClient, put: Put) -> None:
    before = asked(fresh_client, 101, k=60)
    away = {"features": placed(-HERE), "fields": {"title": "Renamed"}}
    answer = fresh_client.put("/v1/items/100", json=away)
    assert answer.json() == {"version": "v1", "id": 100, "vector": "training"}
    assert asked(fresh_client, 101, k=60) == before
    found = fresh_client.post("/v1/recommend", json={"history": [101], "k": 60}).json()["items"]
    assert {item["id"]: item["fields"] for item in found}[100] == {"title": "Renamed"}


def state(client: TestClient, item: int) -> dict[str, Any]:
    answer = client.get(f"/v1/items/{item}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_fresh_item_is_shown_with_the_features_that_were_put(fresh_client: TestClient, put: Put) -> None:
    """`later` was trained with it: there, only fields put since its export count, and its features do not."""
    put(fields={"title": "New"})
    put(901)
    put()
    shown = state(fresh_client, 900)
    assert shown["fields"] == shown["features"] == placed(HERE)
    put(fields={"title": "New"})
    shown = state(fresh_client, 900)
    assert (shown["fields"], shown["features"]) == ({"title": "New"}, placed(HERE))
    assert (shown["fresh"], shown["in_index"], shown["versions"]) == (True, False, [])
    assert shown["training_events"] is shown["popularity_rank"] is None
    activate(fresh_client, "later")
    shown = state(fresh_client, 900)
    assert (shown["fresh"], shown["features"], shown["versions"]) == (False, None, ["later"])


def test_replaced_fields_are_shown_and_said(fresh_client: TestClient, put: Put) -> None:
    before = state(fresh_client, 100)
    put(100, fields={"title": "Renamed"})
    assert state(fresh_client, 100) == {**before, "fields": {"title": "Renamed"}, "fields_replaced": True}


def test_a_withdrawn_item_of_the_version_is_shown_and_another_is_not_found(
    fresh_client: TestClient, put: Put
) -> None:
    before = state(fresh_client, 107)
    put(900)
    for item in (107, 900):
        fresh_client.delete(f"/v1/items/{item}")
    assert state(fresh_client, 107) == {**before, "withdrawn": True}
    answer = fresh_client.get("/v1/items/900")
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "id")
    assert "withdrawn" in answer.json()["error"]["message"]
    put(107, fields={})
    assert not state(fresh_client, 107)["withdrawn"]


def test_an_item_names_the_canary_that_was_trained_with_it(fresh_client: TestClient) -> None:
    body = {"canary": {"version": "later", "share": 0.5}}
    assert fresh_client.post("/admin/routes", json=body, headers=KEY).status_code == 200
    shown = state(fresh_client, 107)
    assert fresh_client.post("/admin/routes", json={"canary": None}, headers=KEY).status_code == 200
    assert (shown["version"], shown["versions"]) == ("v1", ["v1", "later"])
    assert state(fresh_client, 107)["versions"] == ["v1"]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_withdrawn_item_is_in_no_answer(fresh_client: TestClient, put: Put, fresh: bool) -> None:
    item = 900 if fresh else 107
    put()
    for _ in range(2):
        assert fresh_client.delete(f"/v1/items/{item}").json() == {
            "version": "v1",
            "id": item,
            "withdrawn": True,
        }
    assert item not in asked(fresh_client, 101, k=61)
    assert item not in asked(fresh_client, k=61)
    assert item not in ids(fresh_client.get("/v1/items/101/similar?k=61"))
    if fresh:
        assert fresh_client.get(f"/v1/items/{item}/similar").status_code == 404
    put(item)
    assert item in asked(fresh_client, 101, k=61)
    assert item in asked(fresh_client, k=61)


def test_many_withdrawn_ones_leave_the_others(fresh_client: TestClient) -> None:
    """Whether they are fetched and dropped, or masked."""
    for item in range(100, 150):
        fresh_client.delete(f"/v1/items/{item}")
    assert set(asked(fresh_client, 155, k=60)) == set(range(150, 160)) - {155}
    assert asked(fresh_client, k=60) == list(range(150, 160))


def test_an_item_that_there_never_was_can_not_be_withdrawn(fresh_client: TestClient) -> None:
    answer = fresh_client.delete("/v1/items/901")
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "id")


def test_a_version_that_was_trained_with_it_has_it_once(fresh_client: TestClient, put: Put) -> None:
    """It is fresh again where that version is rolled back, and a withdrawal holds in all of them."""
    put()
    activate(fresh_client, "later")
    assert asked(fresh_client, 101, k=61).count(900) == 1
    fresh_client.delete("/v1/items/108")
    activate(fresh_client, "v1")
    back = asked(fresh_client, 101, k=61)
    assert back.count(900) == 1
    assert 108 not in back
    assert asked(fresh_client, 100, k=1) == [900]


def test_a_version_without_an_item_tower_says_what_would_help(fresh_client: TestClient, put: Put) -> None:
    put()
    activate(fresh_client, "ids")
    assert 900 not in asked(fresh_client, 101, k=61)
    answer = put(901)
    assert answer.status_code == 409
    assert "tower.item.features" in answer.json()["error"]["message"]
    assert put(105).status_code == 200
    activate(fresh_client, "v1")
    assert 900 in asked(fresh_client, 101, k=61)


def test_there_is_a_limit_to_fresh_items(fresh_client: TestClient, put: Put) -> None:
    assert [put(900 + number).status_code for number in range(4)] == [200, 200, 200, 409]
    assert put(900).status_code == put(100).status_code == 200
    message = put(903).json()["error"]["message"]
    assert "TURRET_FRESH_ITEMS_LIMIT" in message
    fresh_client.delete("/v1/items/901")
    assert put(903).status_code == 200


def test_there_is_a_limit_to_other_fields_of_known_items(fresh_client: TestClient, put: Put) -> None:
    assert [put(100 + number, fields={}).status_code for number in range(4)] == [200, 200, 200, 409]
    assert put(100, fields={"title": "Again"}).status_code == put(900).status_code == 200
    message = put(103).json()["error"]["message"]
    assert "TURRET_FRESH_ITEMS_LIMIT" in message
    assert "the fields of 3 items of version v1 have already been replaced" in message
    fresh_client.delete("/v1/items/101")
    assert put(103).status_code == 200


@pytest.mark.parametrize(
    ("item", "body", "status", "field"),
    [
        ("900", {}, 422, "features"),
        ("900", {"features": [1]}, 422, "features"),
        ("900", {"features": {}, "fields": 3}, 422, "fields"),
        ("900", {"features": {}, "more": 3}, 422, "more"),
        ("900", {"features": {"n0": "one"}}, 422, "features.n0"),
        ("900", {"features": {"colour": "red"}}, 422, "features.colour"),
        ("100", {"features": {"colour": "red"}}, 422, "features.colour"),
        ("900", {"features": {"tags": ["new"] * 2001}}, 422, "features"),
        ("900", {"features": {}, "fields": {"text": "x" * 16_000}}, 413, "fields"),
        ("x", {"features": {}}, 422, "id"),
        ("0900", {"features": {}}, 422, "id"),
        ("9" * 30, {"features": {}}, 422, "id"),
        ("%ff", {"features": {}}, 422, "id"),
        ("", {"features": {}}, 422, "id"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    fresh_client: TestClient, item: str, body: object, status: int, field: str
) -> None:
    answer = fresh_client.put(f"/v1/items/{item}", json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), answer.text
    assert len(asked(fresh_client, k=100)) == 60


def test_ids_of_a_catalog_of_names_may_hold_anything(tmp_path: Path) -> None:
    publish(tmp_path, with_item_tower(contents(ids=[f"i{n}" for n in range(40)])))
    with TestClient(create_app(Settings(bundles=tmp_path, store="memory://"))) as client:
        for item in ("a%2Fb", "similar", "7", "%F0%9F%8E%AC", "a%00b"):
            assert client.put(f"/v1/items/{item}", json={"features": {"n0": 1.0}}).status_code == 200
            assert client.get(f"/v1/items/{item}/similar").status_code == 200
        found = asked(client, k=100)
        assert [one for one in found if not str(one).startswith("i")] == ["a/b", "similar", "7", "🎬", "a\0b"]


def test_an_item_that_could_not_be_kept_is_not_served(
    fresh_client: TestClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> int:
        raise ItemsUnavailableError("the disk is full")

    store = fresh_client.app.state.components.items  # type: ignore[attr-defined]
    monkeypatch.setattr(store, "put", fail)
    monkeypatch.setattr(store, "withdraw", fail)
    for answer in (put(), fresh_client.delete("/v1/items/100")):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert asked(fresh_client, k=100) == list(range(100, 160))


def test_explanations_and_batches_know_fresh_items(fresh_client: TestClient, put: Put) -> None:
    put()
    body = {"history": [900, 105, 120], "k": 3, "explain": True, "exclude_seen": False}
    answer = fresh_client.post("/v1/recommend", json=body).json()
    named = [one["id"] for item in answer["explanation"]["items"] for one in item["pulled_by"]]
    assert 900 in named
    requests = {"requests": [{"history": [100], "k": 1}, {"history": [900], "k": 1}]}
    results = fresh_client.post("/v1/recommend/batch", json=requests).json()["results"]
    assert [one["items"][0]["id"] for one in results] == [900, 100]


def test_the_plan_counts_fresh_items_among_those_looked_at(fresh_client: TestClient, put: Put) -> None:
    def plan(**more: Any) -> Any:
        body = {"history": [105], "k": 3, "explain": True, **more}
        return fresh_client.post("/v1/recommend", json=body).json()["explanation"]["plan"]

    named = {"filter": {"title": {"equals": "New"}}}
    before, none = plan(), plan(**named)
    put(fields={"title": "New"})
    assert plan() == {**before, "fetched": before["fetched"] + 1}
    assert plan(**named) == {**none, "allowed": none["allowed"] + 1, "fetched": none["fetched"] + 1}


def test_a_page_goes_on_into_fresh_items(fresh_client: TestClient, put: Put) -> None:
    for number in range(3):
        put(900 + number, features=placed(np.roll(HERE, number)))
    whole = asked(fresh_client, 105, k=62)
    found: list[object] = []
    cursor = None
    while len(found) < 62:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        answer = fresh_client.post("/v1/recommend", json={"history": [105], "k": 7, **more})
        found += ids(answer)
        cursor = answer.json().get("cursor")
        if cursor is None:
            break
    assert found == whole


def test_filters_read_the_fields_of_fresh_items_and_replaced_ones(fresh_client: TestClient, put: Put) -> None:
    """The bundle's own are all of the genre drama."""
    put(900, fields={"title": "New", "genres": ["war"]})
    put(901, fields={"title": "Other", "genres": ["drama"]})
    put(105, fields={"title": "Renamed", "genres": ["war", "noir"]})
    fresh_client.delete("/v1/items/106")
    war, drama = ({"genres": {"any_of": [genre]}} for genre in ("war", "drama"))
    for history in ([101], []):
        assert set(asked(fresh_client, *history, k=100, filter=war)) == {900, 105}
        found = asked(fresh_client, *history, k=100, filter=drama, exclude_seen=False)
        assert set(found) == {*range(100, 160), 901} - {105, 106}
    fresh_client.delete("/v1/items/900")
    assert asked(fresh_client, 101, k=100, filter=war) == [105]
    assert asked(fresh_client, 101, k=100, filter={"title": {"equals": "nothing"}}) == []
