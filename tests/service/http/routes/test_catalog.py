import pytest
from fastapi.testclient import TestClient


def test_items_are_found_and_paged(fresh_client: TestClient) -> None:
    """The bundle of the tests has the items 100 to 159, titled `Item 100` and so on, by popularity."""
    first = fresh_client.get("/v1/items", params={"query": "item 11", "limit": 4}).json()
    assert first["version"] == "v1"
    assert [item["id"] for item in first["items"]] == [110, 111, 112, 113]
    assert first["items"][0] == {
        "id": 110,
        "fields": {"title": "Item 110", "genres": ["drama"]},
        "training_events": 50,
    }
    second = fresh_client.get(
        "/v1/items", params={"query": "item 11", "limit": 9, "cursor": first["cursor"]}
    ).json()
    assert [item["id"] for item in second["items"]] == [114, 115, 116, 117, 118, 119]
    assert "cursor" not in second


def test_without_a_query_the_most_popular_items_come_first(fresh_client: TestClient) -> None:
    items = fresh_client.get("/v1/items").json()["items"]
    assert [item["id"] for item in items] == list(range(100, 120))


def test_items_are_returned_by_their_ids_in_the_order_of_the_request(fresh_client: TestClient) -> None:
    answer = fresh_client.get("/v1/items", params={"id": ["159", "7", "100", "0100"]}).json()
    assert [item["id"] for item in answer["items"]] == [159, 100]


def test_a_withdrawn_item_is_not_found_but_known_by_its_id(fresh_client: TestClient) -> None:
    assert fresh_client.delete("/v1/items/110").status_code == 200
    assert fresh_client.get("/v1/items", params={"query": "110"}).json()["items"] == []
    items = fresh_client.get("/v1/items", params={"id": ["110", "111"]}).json()["items"]
    assert [(item["id"], item.get("withdrawn", False)) for item in items] == [(110, True), (111, False)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("cursor=-1", "cursor"),
        ("cursor=10000", "cursor"),
        ("cursor=%D9%A1", "cursor"),
        (f"query={'a' * 201}", "query"),
        ("query=a&id=1", "id"),
        ("id=", "id"),
        ("id=1&id=%FF", "id"),
        ("query=%C3%28", "query"),
        ("&".join(["id=1"] * 101), "id"),
    ],
)
def test_a_wrong_parameter_is_named(fresh_client: TestClient, query: str, field: str) -> None:
    answer = fresh_client.get(f"/v1/items?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field


def test_the_fields_are_summarised(fresh_client: TestClient) -> None:
    assert fresh_client.get("/v1/fields").json() == {
        "version": "v1",
        "title": "title",
        "picture": None,
        "fields": [
            {"name": "title", "kind": "text", "missing": 0},
            {"name": "genres", "kind": "texts", "missing": 0, "values": [{"value": "drama", "items": 60}]},
        ],
    }
