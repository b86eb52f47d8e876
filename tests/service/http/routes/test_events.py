import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient

Recommend = Callable[..., dict[str, Any]]


def event(
    event_id: int | str, user_id: int | str = 7, item_id: int | str = 101, **more: Any
) -> dict[str, Any]:
    return {"event_id": event_id, "user_id": user_id, "item_id": item_id, **more}


def post(client: TestClient, *events: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/events", json={"events": events})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def stored_time(client: TestClient, **more: Any) -> str:
    post(client, event("timed", **more))
    (found,) = client.get("/v1/users/7").json()["events"]
    return str(found["time"])


def test_an_event_is_in_the_users_next_answer(fresh_client: TestClient, recommend: Recommend) -> None:
    before = recommend(user_id=7)
    assert post(fresh_client, event("a"), event("b", item_id="102")) == {"stored": 2, "duplicates": 0}
    after = recommend(user_id="7")
    assert {item["source"] for item in before["items"]} == {"popular"}
    assert after["items"] == recommend(history=[101, 102])["items"]


def test_an_event_counts_once(fresh_client: TestClient) -> None:
    assert post(fresh_client, event(1), event("1")) == {"stored": 1, "duplicates": 1}
    assert post(fresh_client, event(1), event(2)) == {"stored": 1, "duplicates": 1}


def test_items_that_no_version_knows_yet_are_stored_too(
    fresh_client: TestClient, recommend: Recommend
) -> None:
    post(fresh_client, event(1, item_id="new"), event(2, item_id=101))
    answer = recommend(user_id=7)
    assert answer["unknown_items"] == ["new"]
    assert answer["items"] == recommend(history=[101])["items"]


@pytest.mark.parametrize(
    "given",
    [1577934245, 1577934245.0, "2020-01-02T03:04:05", "2020-01-02T03:04:05Z", "2020-01-02T05:04:05+02:00"],
)
def test_times_are_seconds_or_iso(fresh_client: TestClient, given: object) -> None:
    assert stored_time(fresh_client, time=given) == "2020-01-02T03:04:05.000+00:00"


@pytest.mark.parametrize("more", [{}, {"time": None}])
def test_the_time_is_now_unless_given(fresh_client: TestClient, more: dict[str, None]) -> None:
    found = datetime.fromisoformat(stored_time(fresh_client, **more))
    assert abs(found.timestamp() - time.time()) < 60


@pytest.mark.parametrize(
    "given",
    [1577934245000, -1e12, 1e300, True, "yesterday", "1577934245", "", [], "0000-01-01", "9999-99-99"],
)
def test_other_times_are_refused(fresh_client: TestClient, given: object) -> None:
    answer = fresh_client.post("/v1/events", json={"events": [event(1, time=given)]})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "events.0.time"


@pytest.mark.parametrize(
    "given",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999-23:59",
        "0001-01-01",
        -62135596800,
        -253402300799,
        253402300799.9999,
    ],
)
def test_the_ends_of_time_can_be_shown(fresh_client: TestClient, given: object) -> None:
    """Either refused, or stored and shown; never a time that later can't be written."""
    answer = fresh_client.post("/v1/events", json={"events": [event(1, time=given)]})
    assert answer.status_code in (200, 422)
    assert fresh_client.get("/v1/users/7").status_code == 200


def test_a_fault_in_one_event_stores_none(fresh_client: TestClient) -> None:
    answer = fresh_client.post("/v1/events", json={"events": [event(1), event(2, time="never")]})
    assert answer.status_code == 422
    assert fresh_client.get("/v1/users/7").json()["total"] == 0


def test_a_thousand_events_are_one_call(fresh_client: TestClient) -> None:
    assert post(fresh_client, *(event(number) for number in range(1000)))["stored"] == 1000
    answer = fresh_client.post("/v1/events", json={"events": [event(number) for number in range(1001)]})
    assert answer.status_code == 422
