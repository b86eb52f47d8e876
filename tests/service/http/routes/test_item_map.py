from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from turret.service.http.app import create_app
from turret.service.settings import Settings
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.item_map import quantised
from turret.tower.format.pointer import point

POINTS = quantised("pca", np.random.default_rng(0).standard_normal((60, 2)))


@pytest.fixture
def mapped(settings: Settings, make_contents: Callable[..., BundleContents]) -> Iterator[TestClient]:
    """A service whose live version has a map."""
    publish(settings.bundles, replace(make_contents("mapped"), item_map=POINTS))
    point(settings.bundles, "mapped")
    with TestClient(create_app(settings)) as client:
        yield client


def test_the_map_is_described_and_sent_as_bytes(mapped: TestClient) -> None:
    assert mapped.get("/v1/map").json() == {"version": "mapped", "method": "pca", "items": 60}
    sent = np.frombuffer(mapped.get("/v1/map/points").content, dtype="<u2").reshape(-1, 2)
    assert (sent == POINTS.points).all()


def test_points_are_coloured_by_a_field(mapped: TestClient) -> None:
    answer = mapped.get("/v1/map/colours", params={"field": "genres"}).json()
    assert answer["groups"] == [{"label": "drama", "items": 60}]
    assert (answer["version"], answer["field"], answer["kind"]) == ("mapped", "genres", "texts")
    assert b64decode(answer["codes"]) == b"\0" * 60
    refused = mapped.get("/v1/map/colours", params={"field": "<b>"})
    assert refused.status_code == 422
    assert "coloured by title, genres" in refused.json()["error"]["message"]


def test_a_missing_parameter_is_named(mapped: TestClient) -> None:
    answer = mapped.get("/v1/map/colours")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "this call needs the parameter field; /docs describes it"


def test_points_name_items_and_items_points(mapped: TestClient) -> None:
    of_points = mapped.get("/v1/map/items", params={"point": ["59", "0"]}).json()["items"]
    assert [(item["point"], item["id"]) for item in of_points] == [(59, 159), (0, 100)]
    assert of_points[1]["fields"]["title"] == "Item 100"
    of_items = mapped.get("/v1/map/items", params={"id": ["101", "7"]}).json()["items"]
    assert [(item["point"], item["id"]) for item in of_items] == [(1, 101)]


@pytest.mark.parametrize(
    "query", ["", "point=60", "point=-1", "point=x", "point=1&id=101", "&".join(["point=1"] * 101)]
)
def test_a_wrong_parameter_is_refused(mapped: TestClient, query: str) -> None:
    assert mapped.get(f"/v1/map/items?{query}").status_code == 422


@pytest.mark.parametrize("path", ["", "/points", "/colours?field=genres", "/items?point=1"])
def test_a_version_without_a_map_says_how_to_get_one(fresh_client: TestClient, path: str) -> None:
    answer = fresh_client.get(f"/v1/map{path}")
    assert answer.status_code == 404
    assert "export the run again" in answer.json()["error"]["message"]
