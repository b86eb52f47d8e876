from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from turret.service.http.app import create_app
from turret.service.settings import Settings


@pytest.fixture
def server(settings: Settings) -> Iterator[TestClient]:
    """Paths are decoded once, as uvicorn does; the test client alone does it twice."""
    app = create_app(settings)

    async def decoded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = unquote(scope["raw_path"].decode("ascii"))
        await app(scope, receive, send)

    with TestClient(decoded) as client:
        yield client


def post(client: TestClient, user_id: int | str, count: int) -> None:
    events = [
        {"event_id": f"{user_id}-{number}", "user_id": user_id, "item_id": number, "time": number}
        for number in range(count)
    ]
    for start in range(0, count, 1000):
        assert client.post("/v1/events", json={"events": events[start : start + 1000]}).status_code == 200


def test_what_is_stored_of_a_user_is_shown(fresh_client: TestClient) -> None:
    event = {"event_id": "e", "user_id": "a/b é", "item_id": "101", "time": 0, "kind": "view"}
    fresh_client.post("/v1/events", json={"events": [event]})
    assert fresh_client.get("/v1/users/a%2Fb%20%C3%A9").json() == {
        "user_id": "a/b é",
        "total": 1,
        "events": [
            {"event_id": "e", "item_id": "101", "time": "1970-01-01T00:00:00.000+00:00", "kind": "view"}
        ],
    }


def test_of_many_events_the_newest_thousand_are_shown(fresh_client: TestClient) -> None:
    post(fresh_client, 7, 1005)
    answer = fresh_client.get("/v1/users/7").json()
    assert answer["total"] == 1005
    assert [event["item_id"] for event in answer["events"]] == list(range(5, 1005))


def test_nothing_is_stored_of_an_unknown_user(fresh_client: TestClient) -> None:
    assert fresh_client.get("/v1/users/nobody").json() == {"user_id": "nobody", "total": 0, "events": []}
    assert fresh_client.delete("/v1/users/nobody").json() == {"user_id": "nobody", "deleted": 0}


def test_a_forgotten_user_is_a_new_one(fresh_client: TestClient) -> None:
    post(fresh_client, 7, 3)
    post(fresh_client, 8, 1)
    assert fresh_client.delete("/v1/users/7").json() == {"user_id": "7", "deleted": 3}
    assert fresh_client.get("/v1/users/7").json()["total"] == 0
    assert fresh_client.get("/v1/users/8").json()["total"] == 1
    answer = fresh_client.post("/v1/recommend", json={"user_id": 7, "k": 1}).json()
    assert answer["items"][0]["source"] == "popular"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(
    "path", ["%ff", "a%FEb", "%ED%A0%80", "%C0%AF", "%F4%90%80%80", "%E2%82", "%C3%A9%C3"]
)
def test_a_path_that_is_not_utf_8_names_nobody(server: TestClient, path: str, method: str) -> None:
    """Else all of them would be one user, whom anybody of them could read and delete."""
    post(server, "\ufffd", 1)
    post(server, "a\ufffdb", 1)
    answer = server.request(method, f"/v1/users/{path}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "user_id")
    assert "UTF-8" in answer.json()["error"]["message"]
    for user in ("%EF%BF%BD", "a%EF%BF%BDb"):
        assert server.get(f"/v1/users/{user}").json()["total"] == 1


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("%EF%BF%BD", "\ufffd"),
        ("a%2Fb", "a/b"),
        ("a/b", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("%25ff", "%ff"),
        ("a+b", "a+b"),
        ("a%20b", "a b"),
        ("a%00b", "a\0b"),
        ("%F0%9F%8E%AC", "🎬"),
        ("e%CC%81", "e\u0301"),
        ("a%", "a%"),
        ("a%zz", "a%zz"),
        ("..%2F..%2Fetc", "../../etc"),
        ("a%0D%0AX:%20y", "a\r\nX: y"),
        ("%EF%BB%BFa", "\ufeffa"),
        ("a%0A", "a\n"),
        ("%0Aa", "\na"),
    ],
)
def test_a_path_is_decoded_once_and_names_one_user(server: TestClient, path: str, user: str) -> None:
    post(server, user, 1)
    post(server, user.strip() + "?", 1)
    assert server.get(f"/v1/users/{path}").json()["user_id"] == user
    assert server.delete(f"/v1/users/{path}").json() == {"user_id": user, "deleted": 1}


def test_a_random_user_has_stored_events(fresh_client: TestClient) -> None:
    missing = fresh_client.get("/v1/random-user")
    assert missing.status_code == 404
    assert "turret history load" in missing.json()["error"]["message"]
    events = [{"event_id": "1", "user_id": user, "item_id": 100} for user in ("a/b", "ü")]
    assert fresh_client.post("/v1/events", json={"events": events}).status_code == 200
    drawn = {fresh_client.get("/v1/random-user").json()["user_id"] for _ in range(40)}
    assert drawn == {"a/b", "ü"}
