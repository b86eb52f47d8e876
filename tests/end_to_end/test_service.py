"""The real process, from its start to its end."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.service_process import WITHOUT_TRAINING, Process, Start, plain_client
from tests.support.until import until
from turret.tower.bundle.publish import BundleContents, publish

KEY = "a-key-of-sixteen"


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


@pytest.mark.nightly
def test_a_service_that_waits_serves_the_first_version_of_its_folder(
    start: Start, tmp_path: Path, make_contents: Callable[..., BundleContents]
) -> None:
    """It stays the same process, keeps the events of the time before, and ends cleanly either way."""
    root = tmp_path / "empty" / "bundles"
    assert start(root, wait=True).stop() == (0, "")
    service = start(root, wait=True)
    assert "waits for a version" in service.greeting
    assert service.client.get("/livez").status_code == 200
    assert service.client.get("/readyz").status_code == 503
    assert service.client.post("/v1/events", json={"events": [event(1)]}).json()["stored"] == 1
    publish(root, make_contents())
    assert service.process.stdout is not None
    assert service.process.stdout.readline() == "turret serves version v1\n"
    answer = service.client.post("/v1/recommend", json={"user_id": 7}).json()
    assert (answer["version"], answer["items"][0]["source"]) == ("v1", "towers")
    assert service.stop() == (0, "")


@pytest.mark.nightly
def test_a_client_that_goes_away_in_the_middle_is_no_fault_of_the_service(start: Start) -> None:
    service = start()
    port = int(service.urls[0].rsplit(":", 1)[1])

    def held() -> str:
        lines = service.client.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("turret_held_bytes ")).split()[1]

    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n")
        client.sendall(b" " * 100_000)
        until(lambda: held() == "100000.0", "the service holds what was sent")
    until(lambda: held() == "0.0", "the service lets go of it")
    assert 'turret_requests_total{route="/v1/recommend"' not in service.client.get("/metrics").text
    assert service.stop() == (0, "")


def compare(process: Process, method: str, path: str = "", body: object = None) -> tuple[int, dict[str, Any]]:
    """An admin call on a connection of its own, so that each worker answers some."""
    with plain_client(process.urls[0], 60, {"Authorization": f"Bearer {KEY}"}) as client:
        answer = client.request(method, f"/admin/comparison{path}", json=body)
        return answer.status_code, answer.json()


@pytest.mark.nightly
def test_every_worker_compares_the_version_that_one_has_opened(
    start: Start, bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
    publish(bundles, make_contents("v2", ids=range(110, 180), seed=1))
    process = start(workers=2, admin_key=KEY)
    assert compare(process, "POST", body={"version": "v2"})[0] == 200
    asked = ("POST", "/recommend", {"history": [120, 130], "k": 5})
    answers = [compare(process, *asked) for _ in range(12)]
    assert {status for status, _ in answers} == {200}
    assert all(answer == answers[0] for answer in answers)
    assert compare(process, "GET", "/catalog")[1]["added"] == 20
    assert compare(process, "GET", "/overlap?k=5")[1]["source"] == "golden"
    assert compare(process, "DELETE")[1] == {"version": None, "live": "v1"}
    assert {compare(process, *asked)[0] for _ in range(6)} == {409}
    assert process.stop()[0] == 0
