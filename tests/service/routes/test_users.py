from fastapi.testclient import TestClient


def post(client: TestClient, user_id: int | str, count: int) -> None:
    events = [
        {"event_id": f"{user_id}-{number}", "user_id": user_id, "item_id": number, "time": number}
        for number in range(count)
    ]
    for start in range(0, count, 1000):
        assert client.post("/v1/events", json={"events": events[start : start + 1000]}).status_code == 200


def test_what_is_stored_of_a_user_is_shown(client: TestClient) -> None:
    event = {"event_id": "e", "user_id": "a/b é", "item_id": "101", "time": 0, "kind": "view"}
    client.post("/v1/events", json={"events": [event]})
    assert client.get("/v1/users/a%2Fb%20%C3%A9").json() == {
        "user_id": "a/b é",
        "total": 1,
        "events": [
            {"event_id": "e", "item_id": "101", "time": "1970-01-01T00:00:00.000+00:00", "kind": "view"}
        ],
    }


def test_of_many_events_the_newest_thousand_are_shown(client: TestClient) -> None:
    post(client, 7, 1005)
    answer = client.get("/v1/users/7").json()
    assert answer["total"] == 1005
    assert [event["item_id"] for event in answer["events"]] == list(range(5, 1005))


def test_nothing_is_stored_of_an_unknown_user(client: TestClient) -> None:
    assert client.get("/v1/users/nobody").json() == {"user_id": "nobody", "total": 0, "events": []}
    assert client.delete("/v1/users/nobody").json() == {"user_id": "nobody", "deleted": 0}


def test_a_forgotten_user_is_a_new_one(client: TestClient) -> None:
    post(client, 7, 3)
    post(client, 8, 1)
    assert client.delete("/v1/users/7").json() == {"user_id": "7", "deleted": 3}
    assert client.get("/v1/users/7").json()["total"] == 0
    assert client.get("/v1/users/8").json()["total"] == 1
    answer = client.post("/v1/recommend", json={"user_id": 7, "k": 1}).json()
    assert answer["items"][0]["source"] == "popular"
