"""The real process, from its start to its end."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.service_process import WITHOUT_TRAINING, Start
from turret.tower.bundle.publish import BundleContents, publish


def event(number: int) -> dict[str, Any]:
    return {"event_id": number, "user_id": 7, "item_id": 101 + number % 50, "time": number}


@pytest.mark.process
def test_it_starts_answers_and_ends_where_nothing_of_training_can_be_imported(start: Start) -> None:
    """Its greeting names the address, the version and the documents; Ctrl-C ends it without a complaint."""
    service = start(before=WITHOUT_TRAINING)
    assert "version v1" in service.greeting
    assert f"{service.urls[0]}/docs" in service.greeting
    assert service.client.get("/docs").status_code == 200
    answer = service.client.post("/v1/recommend", json={"history": [101], "k": 3})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 3)
    assert service.client.post("/v1/events", json={"events": [event(1)]}).json()["stored"] == 1
    assert service.stop(signal.SIGINT) == (0, "")


@pytest.mark.process
def test_an_acknowledged_event_survives_being_killed(start: Start) -> None:
    service = start()
    acknowledged = 0
    for first in range(0, 60, 3):
        events = [event(number) for number in range(first, first + 3)]
        acknowledged += service.client.post("/v1/events", json={"events": events}).json()["stored"]
    before = service.client.post("/v1/recommend", json={"user_id": 7}).json()["items"]
    service.stop(signal.SIGKILL)
    again = start()
    assert again.client.get("/v1/users/7").json()["total"] == acknowledged == 60
    assert again.client.post("/v1/recommend", json={"user_id": 7}).json()["items"] == before
    answer = again.client.post("/v1/events", json={"events": [event(1)]}).json()
    assert answer == {"stored": 0, "duplicates": 1}


@pytest.mark.nightly
def test_a_version_that_was_activated_is_live_after_a_restart(
    start: Start, bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    """Admin calls have an address of their own, and need the key."""
    publish(bundles, make_contents("v2", seed=3))
    service = start(admin_port=0)
    header = {"Authorization": f"Bearer {(bundles / 'admin.key').read_text().strip()}"}
    admin = service.urls[-1]
    assert admin not in service.urls[:2]
    body = {"version": "v2"}
    assert service.client.post("/admin/activate", json=body, headers=header).status_code == 404
    assert httpx2.post(f"{admin}/admin/activate", json=body, trust_env=False).status_code == 401
    answer = httpx2.post(f"{admin}/admin/activate", json=body, headers=header, trust_env=False)
    assert answer.json() == {"version": "v2", "previous": "v1"}
    service.stop()
    assert "version v2" in start().greeting
