"""Events that tests send to a service, and what became of them."""

import time
from collections.abc import Callable
from typing import Any

import httpx2

from tests.support.service_process import Process


def event(event_id: str, user: int | str = 7, item: int = 101, **more: Any) -> dict[str, Any]:
    return {"event_id": event_id, "user_id": user, "item_id": item, **more}


def send(service: Process, *events: dict[str, Any]) -> httpx2.Response:
    return service.client.post("/v1/events", json={"events": events})


def acknowledged(service: Process, *events: dict[str, Any]) -> bool:
    """Send events; whether the answer is that they are stored, or else a refusal as it should be."""
    answer = send(service, *events)
    if answer.status_code == 200:
        return True
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["field"] == "store"
    return False


def stored(service: Process, user: int | str = 7) -> list[str]:
    """The ids of the events of a user, up to 1000."""
    answer = service.client.get(f"/v1/users/{user}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    found = [one["event_id"] for one in body["events"]]
    assert body["total"] == len(found) == len(set(found))
    return found


def recommended(service: Process, user: int | str = 7) -> dict[str, Any]:
    answer = service.client.post("/v1/recommend", json={"user_id": user, "k": 5})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert len(found["items"]) == 5
    return found


def until(is_so: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it didn't come to that"
        time.sleep(0.05)
