"""The real process, from its start to its end."""

import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.service_process import WITHOUT_TRAINING, Start
from tests.support.until import until
from turret.tower.bundle.publish import BundleContents, publish


def event(number: int) -> dict[str, Any]:
    return {"event_id": number, "user_id": 7, "item_id": 101 + number % 50, "time": number}


def test_the_greeting_names_the_address_the_version_and_the_documents(start: Start) -> None:
    service = start()
    assert "version v1" in service.greeting
    assert f"{service.urls[0]}/docs" in service.greeting
    assert service.client.get("/docs").status_code == 200
    assert service.client.get("/readyz").json()["version"] == "v1"


def test_it_starts_and_answers_where_nothing_of_training_can_be_imported(start: Start) -> None:
    service = start(before=WITHOUT_TRAINING)
    answer = service.client.post("/v1/recommend", json={"history": [101], "k": 3})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 3)
    assert service.client.post("/v1/events", json={"events": [event(1)]}).json()["stored"] == 1


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


def test_a_kill_among_many_writers_loses_nothing_that_was_acknowledged(start: Start) -> None:
    service = start()
    acknowledged: list[str] = []
    enough = threading.Event()

    def write(writer: int) -> None:
        for number in range(10_000):
            body = {"events": [event(0) | {"event_id": f"{writer}-{number}"}]}
            try:
                if service.client.post("/v1/events", json=body).status_code == 200:
                    acknowledged.append(f"{writer}-{number}")
            except httpx2.HTTPError:
                return
            if len(acknowledged) >= 100:
                enough.set()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    assert enough.wait(30)
    service.process.kill()
    for writer in writers:
        writer.join()
    stored = start().client.get("/v1/users/7").json()["events"]
    assert len(acknowledged) >= 100
    assert {one["event_id"] for one in stored} >= set(acknowledged[-900:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(start: Start, number: signal.Signals) -> None:
    service = start(admin_port=0)
    assert service.client.get("/livez").status_code == 200
    assert service.stop(number) == (0, "")


def test_two_signals_at_once_end_it_cleanly_too(start: Start) -> None:
    """As Ctrl-C does in a script that also stops what it has started."""
    service = start(admin_port=0)
    assert service.client.get("/livez").status_code == 200
    service.process.send_signal(signal.SIGINT)
    assert service.stop(signal.SIGTERM) == (0, "")


def test_a_version_that_was_activated_is_live_after_a_restart(
    start: Start, bundles: Path, make_contents: Callable[..., BundleContents]
) -> None:
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


def test_a_taken_port_is_said(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complaint = start(port=port).stop()
    assert complaint == (
        1,
        f"turret: can't listen on 127.0.0.1:{port} (Address already in use); "
        "stop the process that uses it, or choose another port\n",
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("missing", "can't be listed"),
        ("empty", "no current version"),
        ("bundle", "index.faiss"),
        ("store", "no store has the address 'redis'"),
    ],
)
def test_what_can_not_be_served_is_said_in_one_line(
    start: Start, bundles: Path, tmp_path: Path, damage: str, words: str
) -> None:
    root = tmp_path / damage
    if damage == "empty":
        root.mkdir()
    if damage in ("bundle", "store"):
        root = bundles
    if damage == "bundle":
        (root / "v1" / "index.faiss").unlink()
    status, complaint = start(root, **({"store": "redis"} if damage == "store" else {})).stop()
    assert status == 1
    assert words in complaint
    assert complaint.count("\n") == 1


def test_an_unfinished_request_does_not_hold_up_the_end(start: Start) -> None:
    service = start(drain_seconds=1)
    port = int(service.urls[0].rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert service.client.get("/livez").status_code == 200
        status, _ = service.stop()
    assert status == 0


def test_a_client_that_goes_away_in_the_middle_is_no_fault_of_the_service(start: Start) -> None:
    service = start()
    port = int(service.urls[0].rsplit(":", 1)[1])

    def held() -> str:
        lines = service.client.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("turret_held_bytes ")).split()[1]

    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n")
        client.sendall(b" " * 100_000)
        until(lambda: held() == "100000.0", "the body is held")
    until(lambda: held() == "0.0", "nothing is held")
    assert 'turret_requests_total{route="/v1/recommend"' not in service.client.get("/metrics").text
    assert service.stop() == (0, "")
