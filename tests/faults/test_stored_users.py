"""What one client stores or asks does not reach the users of another: in the real process."""

import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.faults.processes import metric
from tests.faults.sending import event, recommended, send, stored
from tests.support.service_process import Process, Start, plain_client
from turret.service.stores.sqlite.histories import SqliteHistory

LONG, EVENTS_EACH = 100, 3_000


def ask(service: Process, method: str, path: str) -> bytes:
    """Ask with a path as it stands; clients would change it."""
    place = urlsplit(service.urls[0])
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        lines = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.sendall(lines.encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65536), b""))


def write_long_histories(path: Path) -> None:
    """Store histories of LONG users faster than events could be sent."""
    SqliteHistory(path).close_now()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            f"""
            WITH RECURSIVE
                users (u) AS (SELECT 0 UNION ALL SELECT u + 1 FROM users WHERE u < {LONG - 1}),
                numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {EVENTS_EACH - 1})
            INSERT INTO events (user, time, arrival, event_id, item, kind)
            SELECT printf('long-%02d', u), n, n, printf('%08d', n), 100 + n % 59, NULL FROM users, numbers
            """
        )


@pytest.mark.fault(56)
def test_one_clients_long_histories_degrade_nobody_elses(start: Start, bundles: Path, tmp_path: Path) -> None:
    """A batch of a few kilobytes asks for 300,000 events; those who ask for one user don't notice."""
    write_long_histories(tmp_path / "long.sqlite")
    service = start(store=f"sqlite:///{tmp_path}/long.sqlite", history_timeout=0.5, request_seconds=60)
    assert send(service, event("e", "short", 110)).status_code == 200
    requests = [{"user_id": f"long-{number:02}", "k": 1} for number in range(LONG)]
    answers: list[httpx2.Response] = []

    def ask_for_much() -> None:
        with plain_client(service.urls[0], 60) as client:
            answers.extend(client.post("/v1/recommend/batch", json={"requests": requests}) for _ in range(4))

    many = [threading.Thread(target=ask_for_much) for _ in range(2)]
    for one in many:
        one.start()
    degraded = []
    while any(one.is_alive() for one in many):
        degraded.append(recommended(service, "short")["degraded"])
    for one in many:
        one.join()
    assert degraded
    assert not any(degraded), f"{sum(map(bool, degraded))} of {len(degraded)} answers did without the store"
    assert [one.status_code for one in answers] == [200] * 8
    for answer in answers:
        # The newest hundred events of each user have all items but one.
        assert {result["items"][0]["id"] for result in answer.json()["results"]} == {159}
    assert metric(service, "turret_breaker_openings_total") == 0


@pytest.mark.fault(58)
def test_a_path_names_one_user(start: Start) -> None:
    service = start()
    for number, user in enumerate(("\ufffd", "%ff", "a", "a\n")):
        assert send(service, event(f"e{number}", user)).status_code == 200
    for path in ("%ff", "%FE", "%ED%A0%80", "%C3"):
        for method in ("GET", "DELETE"):
            answer = ask(service, method, f"/v1/users/{path}")
            assert answer.startswith(b"HTTP/1.1 422 ")
            assert b"this isn't UTF-8" in answer
    assert b'"deleted":1' in ask(service, "DELETE", "/v1/users/a%0A")
    assert b'"deleted":0' in ask(service, "DELETE", "/v1/users/a%0a")
    assert b'"deleted":1' in ask(service, "DELETE", "/v1/users/%25ff")
    assert stored(service, "%EF%BF%BD") == ["e0"]
    assert stored(service, "a") == ["e2"]


@pytest.mark.fault(57)
def test_an_event_id_that_somebody_else_has_used_costs_nobody_an_event(start: Start) -> None:
    service = start(workers=2)
    assert send(service, event("1", "thief"), event("2", "thief")).json() == {"stored": 2, "duplicates": 0}
    assert send(service, event("1", "victim"), event("1", "thief")).json() == {"stored": 1, "duplicates": 1}
    assert (stored(service, "victim"), stored(service, "thief")) == (["1"], ["1", "2"])


@pytest.mark.fault(59)
def test_a_file_of_histories_that_others_could_read_is_private_after_the_start(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "h.sqlite"
    SqliteHistory(path).close_now()
    path.chmod(0o644)
    service = start(store=f"sqlite:///{path}", workers=2)
    assert send(service, event("e", "u"), event("e", "v")).json() == {"stored": 2, "duplicates": 0}
    files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("h.*")}
    assert len(files) >= 4
    assert set(files.values()) == {0o600}
