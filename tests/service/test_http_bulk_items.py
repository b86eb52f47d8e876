"""`POST /v1/items`: many changes as JSON lines, each with its own result."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_app import ids, recommended, serving
from turret.tower.bundle.publish import publish

HERE = placed(contents().item_vectors[0])  # where item 100 is


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[TestClient]:
    """60 items with the ids 100 to 159, and an item tower."""
    publish(tmp_path, with_item_tower(contents("v1")))
    with serving(tmp_path) as client:
        yield client


def post(client: TestClient, *lines: object, kind: str = "application/x-ndjson") -> httpx2.Response:
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    return client.post("/v1/items", content=body, headers={"Content-Type": kind})


def results(answer: httpx2.Response) -> list[tuple[Any, int]]:
    assert answer.status_code == 200, answer.text
    return [(result["id"], result["status"]) for result in answer.json()["results"]]


def test_each_line_is_what_the_call_of_one_item_does(shop: TestClient) -> None:
    answer = post(
        shop,
        {"id": 900, "features": HERE, "fields": {"title": "New", "genres": ["war"]}},
        {"id": "105", "method": "PATCH", "fields": {"stock": 3}},
        {"id": 106, "method": "DELETE"},
        b"  ",
        {"id": 107, "method": "PUT", "features": {}, "fields": {"title": "Renamed"}},
    )
    assert answer.json() == {
        "version": "v1",
        "changed": 4,
        "refused": 0,
        "results": [
            {"line": 1, "id": 900, "vector": "features", "status": 200},
            {"line": 2, "id": 105, "vector": "training", "status": 200},
            {"line": 3, "id": 106, "withdrawn": True, "status": 200},
            {"line": 5, "id": 107, "vector": "training", "status": 200},
        ],
    }
    found = ids(recommended(shop, history=[101], k=100))
    assert 900 in found
    assert 106 not in found
    fields = {item: shop.get(f"/v1/items/{item}").json()["fields"] for item in (105, 107)}
    assert fields[105] == {"title": "Item 105", "genres": ["drama"], "stock": 3}
    assert fields[107] == {"title": "Renamed"}
    assert ids(recommended(shop, k=9, filter={"genres": {"equals": "war"}})) == [900]


def test_a_line_that_is_refused_says_why_and_the_others_are_kept(shop: TestClient) -> None:
    answer = post(
        shop,
        b"{",
        {"id": 900, "features": {"colour": 1}},
        {"id": 901, "features": HERE, "colour": 1},
        {"id": 902},
        {"id": 903, "method": "PATCH", "fields": {"stock": 1}},
        {"id": 904, "method": "DELETE"},
        {"id": 905, "features": HERE, "fields": {"text": "x" * 50_000}},
        {"id": "name", "features": HERE},
        {"id": 906, "features": HERE},
    )
    wanted = [(None, 400), (900, 422), (None, 422), (None, 422), (903, 404), (904, 404), (905, 413)]
    assert results(answer) == [*wanted, ("name", 422), (906, 200)]
    refused = answer.json()["results"]
    assert (answer.json()["changed"], answer.json()["refused"]) == (1, 8)
    assert [result["line"] for result in refused] == list(range(1, 10))
    assert refused[1]["error"]["field"] == "features.colour"
    assert "unknown field; the fields are id, method, features, fields" in refused[2]["error"]["message"]
    assert "PATCH changes fields alone" in refused[3]["error"]["message"]
    assert shop.get("/v1/items/906").status_code == 200
    assert shop.get("/v1/items/900").status_code == 404


def test_several_lines_of_one_item_are_applied_in_their_order(shop: TestClient) -> None:
    answer = post(
        shop,
        {"id": 900, "features": HERE, "fields": {"title": "One", "stock": 1}},
        {"id": "900", "method": "PATCH", "fields": {"stock": 2}},
        {"id": 900, "method": "PATCH", "fields": {"title": None, "price": 4}},
        {"id": 901, "features": HERE},
        {"id": 901, "method": "DELETE"},
        {"id": 901, "method": "PATCH", "fields": {"stock": 2}},
        {"id": 105, "method": "PATCH", "fields": {"stock": 2}},
        {"id": 105, "method": "PATCH", "fields": {"stock": None, "price": 1}},
    )
    statuses = [status for _, status in results(answer)]
    assert statuses == [200] * 5 + [409] + [200] * 2
    assert shop.get("/v1/items/900").json()["fields"] == {"stock": 2, "price": 4}
    assert shop.get("/v1/items/901").status_code == 404
    assert shop.get("/v1/items/105").json()["fields"] == {
        "title": "Item 105",
        "genres": ["drama"],
        "price": 1,
    }


def test_ten_thousand_items_fit_into_one_call_and_one_more_does_not(shop: TestClient) -> None:
    random = np.random.default_rng(0)
    lines: list[dict[str, object]] = [
        {
            "id": 1_000 + number,
            "features": placed(random.standard_normal(8).astype(np.float32)),
            "fields": {"title": f"New {number}", "genres": ["war" if number % 2 else "noir"]},
        }
        for number in range(10_000)
    ]
    answer = post(shop, *lines)
    assert (answer.json()["changed"], answer.json()["refused"]) == (10_000, 0)
    war = recommended(shop, history=[101], k=1_000, filter={"genres": {"equals": "war"}})
    assert len(ids(war)) == 1_000
    assert {item % 2 for item in ids(war)} == {1}
    stock = [{"id": line["id"], "method": "PATCH", "fields": {"stock": 1}} for line in lines]
    assert post(shop, *stock).json()["changed"] == 10_000
    last = shop.get("/v1/items/10999").json()
    assert last["fields"] == {"title": "New 9999", "genres": ["war"], "stock": 1}
    refused = post(shop, *stock, stock[0])
    assert refused.status_code == 413
    assert "more than 10000 lines; send it in parts" in refused.json()["error"]["message"]


def test_blank_lines_and_a_mark_of_windows_are_no_items(shop: TestClient) -> None:
    line = json.dumps({"id": 105, "method": "DELETE"}).encode()
    assert results(post(shop, b"\xef\xbb\xbf" + line + b"\n" * 50_000)) == [(105, 200)]
