from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish


def test_an_item_of_the_version_is_shown_with_its_fields_and_popularity(fresh_client: TestClient) -> None:
    """The bundle of the tests has 60 items with the counts 60 to 1."""
    assert fresh_client.get("/v1/items/107").json() == {
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


def test_an_empty_id_is_not_found(fresh_client: TestClient) -> None:
    assert fresh_client.get("/v1/items/").status_code == 404


def test_similar_items_leave_out_the_item_itself(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/v1/items/101/similar?k=59").json()
    found = [item["id"] for item in answer["items"]]
    assert answer["version"] == "v1"
    assert sorted([*found, 101]) == list(range(100, 160))
    scores = [item["score"] for item in answer["items"]]
    assert scores == sorted(scores, reverse=True)
    assert "exhausted" not in answer


def test_ten_are_given_unless_said_otherwise(fresh_client: TestClient) -> None:
    assert len(fresh_client.get("/v1/items/101/similar").json()["items"]) == 10


def test_more_than_there_are_say_so(fresh_client: TestClient) -> None:
    assert fresh_client.get("/v1/items/101/similar?k=60").json()["exhausted"] is True


@pytest.mark.parametrize("call", ["", "/similar"])
@pytest.mark.parametrize("item", ["99", "0101", "x", "%00", "-1", "9" * 30, "a/b"])
def test_an_unknown_item_is_not_found(fresh_client: TestClient, item: str, call: str) -> None:
    answer = fresh_client.get(f"/v1/items/{item}{call}")
    assert answer.status_code == 404
    assert answer.json()["error"]["field"] == "id"


@pytest.mark.parametrize("path", ["%ff/similar", "%ED%A0%80/similar", "10%fe"])
def test_a_path_that_is_not_utf_8_names_no_item(fresh_client: TestClient, path: str) -> None:
    for method in ("GET",) if path.endswith("similar") else ("GET", "PUT", "DELETE"):
        answer = fresh_client.request(method, f"/v1/items/{path}", json={"features": {}})
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "id")
        assert "UTF-8" in answer.json()["error"]["message"]


@pytest.mark.parametrize("k", ["0", "-1", "1001", "x", "", "1e3", "10.0", "99999999999999999999", "٣"])
def test_k_out_of_range_is_refused(fresh_client: TestClient, k: str) -> None:
    answer = fresh_client.get("/v1/items/101/similar", params={"k": k})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "k"


def test_ids_may_hold_anything(tmp_path: Path, make_contents: Callable[..., BundleContents]) -> None:
    strange = ["a/b", "a b", "é?&#", "100%", "similar", "/", "🎬"]
    publish(tmp_path, make_contents(ids=strange))
    with TestClient(create_app(Settings(bundles=tmp_path, store="memory://"))) as client:
        for item in strange:
            assert client.get(f"/v1/items/{quote(item, safe='')}/similar").status_code == 200, item
            assert client.get(f"/v1/items/{quote(item, safe='')}").json()["id"] == item
