"""`/v1/events` and `/v1/users`: what is stored of a user, shown, used and forgotten."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.support.service_app import post_events, recommended, serving
from turret.service.http.app import create_app
from turret.service.settings import Settings


def event(
    event_id: int | str, user_id: int | str = 7, item_id: int | str = 101, **more: Any
) -> dict[str, Any]:
    return {"event_id": event_id, "user_id": user_id, "item_id": item_id, **more}


def test_an_event_is_in_the_users_next_answer(fresh_client: TestClient) -> None:
    stored = post_events(fresh_client, event("a"), event("b", item_id="102"))
    assert stored == {"stored": 2, "duplicates": 0}
    after = recommended(fresh_client, user_id="7")
    assert after["items"] == recommended(fresh_client, history=[101, 102])["items"]


def test_an_answer_counts_the_times_that_were_moved_and_the_events_that_are_too_old(bundles: Path) -> None:
    sent = [event("a", time=time.time() + 9e6), event("b", time="0001-01-01"), event("c", time=1), event("d")]
    with serving(bundles, keep_days=2) as client:
        assert post_events(client, *sent) == {"stored": 2, "duplicates": 0, "clamped": 2, "expired": 2}


def test_of_many_events_the_newest_thousand_are_shown(fresh_client: TestClient) -> None:
    for numbers in (range(1000), range(1000, 1005)):
        post_events(fresh_client, *(event(n, item_id=n, time=n) for n in numbers))
    answer = fresh_client.get("/v1/users/7").json()
    assert answer["total"] == 1005
    assert [one["item_id"] for one in answer["events"]] == list(range(5, 1005))


def test_what_is_stored_of_a_user_is_shown(fresh_client: TestClient) -> None:
    post_events(fresh_client, event("e", "a/b é", "101", time=0, kind="view"))
    shown = {"event_id": "e", "item_id": "101", "time": "1970-01-01T00:00:00.000+00:00", "kind": "view"}
    answer = fresh_client.get("/v1/users/a%2Fb%20%C3%A9").json()
    assert answer == {"user_id": "a/b é", "total": 1, "events": [shown]}


def test_a_forgotten_user_is_a_new_one(fresh_client: TestClient) -> None:
    post_events(fresh_client, *(event(number) for number in range(3)), event("other", user_id=8))
    assert fresh_client.delete("/v1/users/7").json() == {"user_id": "7", "deleted": 3}
    assert fresh_client.get("/v1/users/7").json()["total"] == 0
    assert fresh_client.get("/v1/users/8").json()["total"] == 1
    assert recommended(fresh_client, user_id=7, k=1)["items"][0]["source"] == "popular"


def test_a_random_user_has_stored_events(fresh_client: TestClient) -> None:
    missing = fresh_client.get("/v1/random-user")
    assert missing.status_code == 404
    assert "turret history load" in missing.json()["error"]["message"]
    post_events(fresh_client, event(1, "a/b"), event(1, "ü"))
    drawn = {fresh_client.get("/v1/random-user").json()["user_id"] for _ in range(40)}
    assert drawn == {"a/b", "ü"}


@pytest.fixture
def decoding(settings: Settings) -> Iterator[TestClient]:
    """Paths are decoded once, as uvicorn does; the test client alone does it twice."""
    app = create_app(settings)

    async def decoded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = unquote(scope["raw_path"].decode("ascii"))
        await app(scope, receive, send)

    with TestClient(decoded) as client:
        yield client


def test_a_path_that_is_not_utf_8_names_nobody(decoding: TestClient) -> None:
    """Else all of them would be one user, whom anybody of them could read and delete."""
    post_events(decoding, event(1, "\ufffd"), event(1, "a\ufffdb"))
    for path in ("%ff", "a%FEb", "%ED%A0%80", "%C0%AF", "%F4%90%80%80", "%E2%82", "%C3%A9%C3"):
        for method in ("GET", "DELETE"):
            answer = decoding.request(method, f"/v1/users/{path}")
            assert (answer.status_code, answer.json()["error"]["field"]) == (422, "user_id"), path
            assert "UTF-8" in answer.json()["error"]["message"]
    for user in ("%EF%BF%BD", "a%EF%BF%BDb"):
        assert decoding.get(f"/v1/users/{user}").json()["total"] == 1


# The path of a user and the user.
USERS = [
    *(("%EF%BF%BD", "\ufffd"), ("a%2Fb", "a/b"), ("a/b", "a/b"), ("a%252Fb", "a%2Fb"), ("%25ff", "%ff")),
    *(("a+b", "a+b"), ("a%20b", "a b"), ("a%00b", "a\0b"), ("%F0%9F%8E%AC", "🎬"), ("e%CC%81", "e\u0301")),
    *(("a%zz", "a%zz"), ("..%2F..%2Fetc", "../../etc"), ("a%0D%0AX:%20y", "a\r\nX: y"), ("%0Aa", "\na")),
]


def test_a_path_is_decoded_once_and_names_one_user(decoding: TestClient) -> None:
    post_events(decoding, event(1, "a"), *(event(1, user + "?") for _, user in USERS))
    for path, user in USERS:
        post_events(decoding, event(1, user))
        assert decoding.get(f"/v1/users/{path}").json()["user_id"] == user
        assert decoding.delete(f"/v1/users/{path}").json() == {"user_id": user, "deleted": 1}
    assert decoding.get("/v1/users/a").json()["total"] == 1
