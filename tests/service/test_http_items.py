"""`/v1/items`, `/v1/fields` and `/v1/map`: what is known of items, and their changes in a live version."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import activate, ids, recommended, serving
from turret.service.errors import ItemsUnavailableError
from turret.tower.bundle.publish import publish

Put = Callable[..., httpx2.Response]
HERE = contents().item_vectors[0]  # where item 100 is
LINES = {"Content-Type": "application/x-ndjson"}
POINTS = np.random.default_rng(0).integers(0, 65_536, (60, 2)).astype(np.uint16)


# ---- Items of the version


def test_items_are_found_and_paged(client: TestClient) -> None:
    """The bundle of the tests has the items 100 to 159, titled `Item 100` and so on, by popularity."""
    first = client.get("/v1/items", params={"query": "item 11", "limit": 4}).json()
    assert first["version"] == "v1"
    assert ids(first) == [110, 111, 112, 113]
    fields = {"title": "Item 110", "genres": ["drama"]}
    assert first["items"][0] == {"id": 110, "fields": fields, "training_events": 50}
    page = {"query": "item 11", "limit": 9, "cursor": first["cursor"]}
    second = client.get("/v1/items", params=page).json()
    assert ids(second) == [114, 115, 116, 117, 118, 119]
    assert "cursor" not in second
    assert ids(client.get("/v1/items").json()) == list(range(100, 120)), "without a query the most popular"


def test_an_item_of_the_version_is_shown_with_its_fields_and_popularity(client: TestClient) -> None:
    assert client.get("/v1/items/107").json() == {
        "version": "v1",
        "id": 107,
        "fields": {"title": "Item 107", "genres": ["drama"]},
        "features": None,
        "in_index": True,
        "fresh": False,
        "fields_replaced": False,
        "withdrawn": False,
        "training_events": 53,
        "popularity_rank": 8,
        "versions": ["v1"],
        "degraded": [],
    }


def test_similar_items_meet_the_conditions_of_a_recommendation(client: TestClient) -> None:
    def chosen(**body: Any) -> Any:
        return client.post("/v1/items/101/similar", json=body).json()

    nearest = ids(client.get("/v1/items/101/similar?k=59").json())
    first = chosen(k=9)
    assert ids(first) == nearest[:9]
    assert ids(chosen(k=9, cursor=first["cursor"])) == nearest[9:18]
    assert ids(chosen(k=3, exclude=nearest[:2])) == nearest[2:5]
    assert ids(chosen(k=59, filter={"title": {"any_of": ["Item 107", "Item 101"]}})) == [107]
    assert ids(chosen(k=59, cap={"genres": 2})) == nearest[:2]
    assert ids(chosen(k=9, min_score=first["items"][4]["score"])) == nearest[:5]
    assert set(ids(chosen(k=5, diversity=0.9))) != set(nearest[:5])
    (parts,) = chosen(k=1, explain=True)["explanation"]["items"]
    assert (parts["id"], parts["pulled_by"]) == (nearest[0], [])


def test_ids_may_hold_anything(tmp_path: Path) -> None:
    strange = ["a/b", "a b", "é?&#", "100%", "similar", "/", "🎬"]
    fresh = ["c/d", "recommend", "7", "🎥", "a\0b"]
    publish(tmp_path, with_item_tower(contents(ids=strange)))
    with serving(tmp_path) as client:
        for item in fresh:
            answer = client.put(f"/v1/items/{quote(item, safe='')}", json={"features": {"n0": 1.0}})
            assert answer.status_code == 200, item
        for item in (*strange, *fresh):
            assert client.get(f"/v1/items/{quote(item, safe='')}/similar").status_code == 200, item
            assert client.get(f"/v1/items/{quote(item, safe='')}").json()["id"] == item
        assert ids(recommended(client, k=100))[-len(fresh) :] == fresh


# ---- The map


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service whose live version has a map."""
    root = tmp_path_factory.mktemp("mapped")
    publish(root, replace(contents("mapped"), item_map=POINTS))
    with serving(root) as client:
        yield client


def test_the_map_is_sent_as_bytes_with_the_colours_of_a_field(mapped: TestClient) -> None:
    assert mapped.get("/v1/map").json() == {"version": "mapped", "items": 60, "colour": None}
    sent = np.frombuffer(mapped.get("/v1/map/points").content, dtype="<u2").reshape(-1, 2)
    assert (sent == POINTS).all()
    answer = mapped.get("/v1/map/colours", params={"field": "genres"}).json()
    assert answer["groups"] == [{"label": "drama", "items": 60}]
    assert b64decode(answer["codes"]) == b"\0" * 60


def test_points_name_items_and_items_points(mapped: TestClient) -> None:
    of_points = mapped.get("/v1/map/items", params={"point": ["59", "0"]}).json()["items"]
    assert [(item["point"], item["id"]) for item in of_points] == [(59, 159), (0, 100)]
    assert of_points[1]["fields"]["title"] == "Item 100"
    of_items = mapped.get("/v1/map/items", params={"id": ["101", "7"]}).json()["items"]
    assert [(item["point"], item["id"]) for item in of_items] == [(1, 101)]


@pytest.mark.parametrize("path", ["", "/points", "/colours?field=genres", "/items?point=1"])
def test_a_version_without_a_map_says_how_to_get_one(client: TestClient, path: str) -> None:
    answer = client.get(f"/v1/map{path}")
    assert answer.status_code == 404
    assert "export the run again" in answer.json()["error"]["message"]


# ---- Changes of items


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`v1` with an item tower, and `later`, other vectors and a tower beside them; `ids` has none."""
    root = tmp_path_factory.mktemp("towers")
    publish(root, with_item_tower(contents()))
    publish(root, with_item_tower(contents("later", ids=[*range(100, 160), 900], seed=1)))
    publish(root, contents("ids"))
    return root


@pytest.fixture
def shop(towers: Path) -> Iterator[TestClient]:
    """A service of `v1` whose items may change."""
    with serving(towers) as client:
        yield client
        activate(client, "v1")


@pytest.fixture
def put(shop: TestClient) -> Put:
    """Put an item where item 100 is."""

    def make(item: object = 900, features: object = None, **body: Any) -> httpx2.Response:
        features = placed(HERE) if features is None else features
        return shop.put(f"/v1/items/{item}", json={"features": features, **body})

    return make


def asked(client: TestClient, *history: object, **body: Any) -> list[Any]:
    return ids(recommended(client, history=history, **body))


def similar(client: TestClient, item: int, k: int) -> list[Any]:
    return ids(client.get(f"/v1/items/{item}/similar?k={k}").json())


def state(client: TestClient, item: int) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/v1/items/{item}").json()
    return found


def make_live(client: TestClient, version: str) -> None:
    assert activate(client, version, force=True).status_code == 200


def test_a_fresh_item_is_in_the_next_answer(shop: TestClient, put: Put) -> None:
    """Where its features put it: beside the item whose vector it has, and behind it where they tie."""
    put(fields={"title": "New"})
    first = recommended(shop, history=[100], k=3)["items"][0]
    assert (first["id"], first["source"], first["fields"]) == (900, "fresh", {"title": "New"})
    assert first["score"] == pytest.approx(1 / 0.5, abs=1e-5)
    assert asked(shop, 100, exclude_seen=False, k=2) == [100, 900]
    assert asked(shop, k=61) == [*range(100, 160), 900], "popular items end with fresh ones"


def test_a_fresh_item_counts_in_a_history(shop: TestClient, put: Put) -> None:
    put()
    by_fresh = recommended(shop, history=[900], k=6)
    assert ids(by_fresh)[0] == 100
    assert "unknown_items" not in by_fresh
    assert ids(by_fresh)[1:] == asked(shop, 100, k=6)[1:]
    assert 900 not in asked(shop, 900, k=59)
    assert 900 not in asked(shop, 101, exclude=[900], k=60)


def test_a_fresh_item_is_shown_with_the_features_that_were_put(shop: TestClient, put: Put) -> None:
    """`later` was trained with it: there, only fields put since its export count, and its features do not."""
    put()
    assert state(shop, 900)["fields"] == placed(HERE), "fields are the features unless given"
    put(fields={"title": "New"})
    shown = state(shop, 900)
    assert (shown["fields"], shown["features"]) == ({"title": "New"}, placed(HERE))
    assert (shown["fresh"], shown["in_index"], shown["versions"]) == (True, False, [])
    assert shown["training_events"] is shown["popularity_rank"] is None
    make_live(shop, "later")
    shown = state(shop, 900)
    assert (shown["fresh"], shown["features"], shown["versions"]) == (False, None, ["later"])


def test_a_known_item_is_changed_in_part(shop: TestClient) -> None:
    before, shown = asked(shop, 101, k=60), state(shop, 100)
    answer = shop.patch("/v1/items/100", json={"fields": {"stock": 3, "genres": ["crime"]}})
    warning = "no item of version v1 has the field 'stock'; filters don't read it, check its name"
    assert answer.json() == {"version": "v1", "id": 100, "vector": "training", "warning": warning}
    fields = {"title": "Item 100", "genres": ["crime"], "stock": 3}
    assert state(shop, 100) == {**shown, "fields": fields, "fields_replaced": True}
    assert asked(shop, 101, k=60) == before
    assert asked(shop, 101, filter={"genres": {"any_of": ["crime"]}}) == [100]


def test_a_fresh_item_is_changed_in_part(shop: TestClient, put: Put) -> None:
    put(features=placed(-HERE), fields={"title": "New", "stock": 3})
    part = {"features": {"tags": None} | placed(HERE), "fields": {"stock": 2}}
    assert shop.patch("/v1/items/900", json=part).status_code == 200
    shown = state(shop, 900)
    assert (shown["features"], shown["fields"]) == (placed(HERE), {"title": "New", "stock": 2})
    assert similar(shop, 100, k=1) == [900]


def test_an_item_is_put_by_the_texts_of_the_columns_of_the_catalog(shop: TestClient, put: Put) -> None:
    """Numbers as shops write them, in the features; the fields are as they were sent."""
    written = {name: f"€ {value:.9f}" for name, value in placed(HERE).items()}
    assert put(features=written).status_code == 200
    assert state(shop, 900)["fields"] == written
    assert state(shop, 900)["features"] == pytest.approx(placed(HERE), abs=1e-8)
    assert similar(shop, 100, k=1) == [900]
    shop.patch("/v1/items/900", json={"features": {name: value[2:] for name, value in written.items()}})
    assert state(shop, 900)["features"] == pytest.approx(placed(HERE), abs=1e-8)
    for wrong in ("1.299", "twelve", "1e999"):
        refused = put(features={"n0": wrong}).json()["error"]
        assert (refused["field"], refused["value"]) == ("features.n0", wrong)
        assert "or a text with one, such as" in refused["message"]


def test_columns_of_the_catalog_that_the_item_tower_does_not_read_are_fields(
    shop: TestClient, put: Put
) -> None:
    """A row of the items file is sent as it is; a field by its own name wins. Other names are misspelt."""
    row = {**placed(HERE), "title": "New", "genres": ["war"]}
    assert put(features=row).json().keys() == {"version", "id", "vector"}, "without a warning"
    shown = state(shop, 900)
    assert (shown["features"], shown["fields"]) == (placed(HERE), row)
    assert asked(shop, 100, filter={"genres": {"any_of": ["war"]}}) == [900]
    put(features=row, fields={"title": "Own"})
    assert state(shop, 900)["fields"] == {"title": "Own", "genres": ["war"]}
    for item in (900, 107):
        answer = shop.patch(f"/v1/items/{item}", json={"features": {"title": 3}})
        assert answer.json()["warning"].startswith("no item of version v1 has a number as 'title' (text)")
        assert state(shop, item)["fields"]["title"] == 3
    refused = put(features=row | {"titel": "New"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "features.titel")


@pytest.mark.parametrize("keeps", [False, True], ids=["decoded", "kept"])
def test_texts_of_items_are_read_as_those_of_the_catalog(tmp_path: Path, keeps: bool) -> None:
    """Features too: a kind that has an entity is that of the catalog only without it."""
    plain = with_item_tower(contents())
    publish(tmp_path, replace(plain, card=plain.card.model_copy(update={"keeps_html": keeps})))
    given = {"title": "Tom &amp; <b>Co</b>", "tags": ["R&amp;D", 3, "a < b"]}
    read = given if keeps else {"title": "Tom & Co", "tags": ["R&D", 3, "a < b"]}
    features = {**placed(HERE), "kind": "<p>film</p>", "tags": ["&#x6f;ld"]}
    with serving(tmp_path) as client:
        put = client.put("/v1/items/900", json={"features": features, "fields": given})
        assert put.status_code == 200, put.text
        assert state(client, 900)["fields"] == read
        stored = state(client, 900)["features"]
        expected = ("<p>film</p>", ["&#x6f;ld"]) if keeps else ("film", ["old"])
        assert (stored["kind"], stored["tags"]) == expected
        client.patch("/v1/items/107", json={"fields": {"title": "&lt;b&gt; &euro;"}})
        assert state(client, 107)["fields"]["title"] == ("&lt;b&gt; &euro;" if keeps else "<b> €")
        line = json.dumps({"id": 901, "features": {}, "fields": {"title": "&amp;"}})
        assert client.post("/v1/items", content=line, headers=LINES).json()["changed"] == 1
        assert state(client, 901)["fields"] == {"title": "&amp;" if keeps else "&"}


@pytest.mark.parametrize("item", [900, 107], ids=["fresh", "of the version"])
def test_a_withdrawn_item_is_in_no_answer_until_it_is_put_again(
    shop: TestClient, put: Put, item: int
) -> None:
    put()
    for _ in range(2):
        answer = shop.delete(f"/v1/items/{item}")
        assert answer.json() == {"version": "v1", "id": item, "withdrawn": True}
    assert item not in asked(shop, 101, k=61)
    assert item not in asked(shop, k=61)
    assert item not in similar(shop, 101, k=61)
    assert shop.get("/v1/items", params={"query": str(item)}).json()["items"] == []
    put(item)
    assert item in asked(shop, 101, k=61)
    assert item in asked(shop, k=61)


@pytest.mark.parametrize("item", [900, 107], ids=["fresh", "of the version"])
def test_a_put_names_the_fields_that_a_withdrawn_item_loses(shop: TestClient, put: Put, item: int) -> None:
    """Only of withdrawn items: a PUT of others replaces all fields too, but nobody takes it for a restore."""
    put(fields={"title": "New", "genres": ["war"]})
    assert "warning" not in put(item, fields={"title": "New", "genres": ["war"]}).json()
    shop.delete(f"/v1/items/{item}")
    assert "warning" not in put(item, fields={"title": "Newer", "genres": []}).json()
    shop.delete(f"/v1/items/{item}")
    warning = put(item, fields={}).json()["warning"]
    assert warning == (
        f"withdrawn items were put without fields that they had: '{item}' ('title', 'genres'); in place of a "
        'PUT, a PATCH with "withdrawn": false restores them'
    )
    assert "warning" not in put(item, fields={}).json()
    lines = [
        {"id": item, "features": {}, "fields": {"title": "New"}},
        {"id": item, "method": "DELETE"},
        {"id": item, "features": {}, "fields": {"stock": 3}},
    ]
    body = "\n".join(map(json.dumps, lines))
    told = shop.post("/v1/items", content=body, headers=LINES).json()["warning"]
    assert told.startswith(f"withdrawn items were put without fields that they had: '{item}' ('title'); in")
    assert "has the field 'stock'" in told


@pytest.mark.parametrize("item", [900, 107, 108], ids=["fresh", "of the version", "changed"])
def test_a_withdrawn_item_is_put_back_by_a_patch_with_all_that_it_had(
    shop: TestClient, put: Put, item: int
) -> None:
    """Also one that is withdrawn twice, and several times."""
    put(fields={"title": "New", "genres": ["war"]})
    shop.patch("/v1/items/108", json={"fields": {"title": "Sold"}})
    before, answered = state(shop, item), asked(shop, 101, k=61)
    for _ in range(2):
        shop.delete(f"/v1/items/{item}")
    assert item not in asked(shop, 101, k=61)
    feed = shop.patch(f"/v1/items/{item}", json={"fields": {"stock": 3}})
    assert feed.status_code == 409
    assert '"withdrawn": false in a PATCH serves it again' in feed.json()["error"]["message"]
    assert shop.patch(f"/v1/items/{item}", json={"withdrawn": False}).status_code == 200
    assert state(shop, item) == {**before, "fields_replaced": item < 900}
    assert asked(shop, 101, k=61) == answered
    lines = [
        {"id": item, "method": "DELETE"},
        {"id": item, "method": "PATCH", "fields": {"genres": ["noir"]}, "withdrawn": False},
    ]
    for line in lines:
        assert shop.post("/v1/items", content=json.dumps(line), headers=LINES).json()["changed"] == 1
    assert state(shop, item)["fields"] == before["fields"] | {"genres": ["noir"]}
    refused = shop.patch(f"/v1/items/{item}", json={})
    assert refused.status_code == 422
    assert "to put a withdrawn item back" in refused.json()["error"]["message"]
    assert shop.patch(f"/v1/items/{item}", json={"withdrawn": True}).status_code == 422


def test_a_withdrawn_item_of_the_version_is_shown_and_another_is_not_found(
    shop: TestClient, put: Put
) -> None:
    before = state(shop, 107)
    put(900)
    for item in (107, 900):
        shop.delete(f"/v1/items/{item}")
    assert state(shop, 107) == {**before, "withdrawn": True}
    (listed,) = shop.get("/v1/items", params={"id": "107"}).json()["items"]
    assert listed["withdrawn"] is True
    answer = shop.get("/v1/items/900")
    assert (answer.status_code, answer.json()["error"]["field"]) == (404, "id")
    assert "withdrawn" in answer.json()["error"]["message"]
    assert shop.get("/v1/items/900/similar").status_code == 404


def test_a_version_that_was_trained_with_it_has_it_once(shop: TestClient, put: Put) -> None:
    """It is fresh again where that version is rolled back, and a withdrawal holds in all of them."""
    put()
    make_live(shop, "later")
    assert asked(shop, 101, k=61).count(900) == 1
    shop.delete("/v1/items/108")
    make_live(shop, "v1")
    back = asked(shop, 101, k=61)
    assert back.count(900) == 1
    assert 108 not in back
    assert asked(shop, 100, k=1) == [900]


def test_a_version_without_an_item_tower_says_what_would_help(shop: TestClient, put: Put) -> None:
    put()
    make_live(shop, "ids")
    assert 900 not in asked(shop, 101, k=61)
    answer = put(901)
    assert answer.status_code == 409
    assert "tower.item.features" in answer.json()["error"]["message"]
    for item, status in ((900, 409), (901, 404)):
        assert shop.patch(f"/v1/items/{item}", json={"fields": {"stock": 1}}).status_code == status
    assert put(105).status_code == 200
    make_live(shop, "v1")
    assert 900 in asked(shop, 101, k=61)


def test_an_item_that_could_not_be_kept_is_not_served(
    shop: TestClient, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> list[int]:
        raise ItemsUnavailableError("the disk is full")

    store = shop.app.state.components.items  # type: ignore[attr-defined]
    monkeypatch.setattr(store, "change", fail)
    part = {"fields": {"title": "Other"}}
    for answer in (put(), shop.delete("/v1/items/100"), shop.patch("/v1/items/100", json=part)):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert asked(shop, k=100) == list(range(100, 160))


def test_filters_read_the_fields_of_fresh_items_and_replaced_ones(shop: TestClient, put: Put) -> None:
    """The bundle's own are all of the genre drama."""
    put(900, fields={"title": "New", "genres": ["war"]})
    put(901, fields={"title": "Other", "genres": ["drama"]})
    put(105, fields={"title": "Renamed", "genres": ["war", "noir"]})
    shop.delete("/v1/items/106")
    war, drama = ({"genres": {"any_of": [genre]}} for genre in ("war", "drama"))
    for history in ([101], []):
        assert set(asked(shop, *history, k=100, filter=war)) == {900, 105}
        found = asked(shop, *history, k=100, filter=drama, exclude_seen=False)
        assert set(found) == {*range(100, 160), 901} - {105, 106}
    shop.delete("/v1/items/900")
    assert asked(shop, 101, k=100, filter=war) == [105]
