"""Versions that are activated, rolled back and refused while others ask."""

import json
import os
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import Traffic, activate, admin, admin_of, children, metric
from tests.faults.versions import ask, damage
from tests.support.service_process import Start, plain_client
from turret.tower.format.pointer import current


@pytest.mark.fault(14)
def test_activations_at_once_take_turns_in_all_workers(start: Start, three: Path) -> None:
    """Each names what it took the place of, as if it had come alone; in the end all serve the last."""
    service = start(workers=2)
    with ThreadPoolExecutor(6) as pool:
        asked = [("v2", "v3", "v1")[place % 3] for place in range(12)]
        answers = list(pool.map(lambda version: activate(service, three, version).json(), asked))
    lines = [json.loads(line) for line in (three / "activations.jsonl").read_text().splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 14))
    chain = [line["version"] for line in lines]
    assert [line.get("previous") for line in lines[1:]] == chain[:-1]
    assert sorted((answer["previous"], answer["version"]) for answer in answers) == sorted(pairwise(chain))
    assert not any("behind" in answer for answer in answers)
    assert current(three) == chain[-1]
    assert {ask(service)["version"] for _ in range(40)} == {chain[-1]}


@pytest.mark.nightly
@pytest.mark.fault(15)
def test_no_answer_is_older_than_what_an_acknowledged_activation_promised(
    start: Start, three: Path, thorough: bool
) -> None:
    """Clients of two workers, versions back and forth: `min_version` holds, and without it the order of
    acknowledgements does too: an answer that begins after one has ended is of that activation or a later."""
    service = start(workers=2)
    order = ["v1"]  # what was asked to be live, in turn
    acknowledged = [0]
    wrong: list[Any] = []
    count = [0]
    over = threading.Event()

    def look(names_it: bool) -> None:
        client = plain_client(service.urls[0])
        while not over.wait(0 if thorough else 0.01):  # without a pause an activation takes seconds
            least = acknowledged[0]
            body = {"min_version": order[least]} if names_it else {}
            answer = client.post("/v1/recommend", json={"k": 3, **body})
            possible = set(order[least:])  # also what is asked for meanwhile, and not yet acknowledged
            version = answer.json().get("version")
            items = {item["id"] // 100 for item in answer.json().get("items", [])}
            if answer.status_code != 200 or version not in possible or items != {int(version[1:])}:
                wrong.append((least, body, answer.status_code, answer.text))
            count[0] += 1
            if count[0] % 20 == 0:  # another connection, perhaps to the other worker
                client.close()
                client = plain_client(service.urls[0])
        client.close()

    clients = [threading.Thread(target=look, args=(place % 2 == 0,)) for place in range(6)]
    for client in clients:
        client.start()
    try:
        for place in range(1, 31 if thorough else 9):
            order.append(("v1", "v2", "v3")[place % 3])
            assert activate(service, three, order[-1]).status_code == 200
            acknowledged[0] = place
    finally:
        over.set()
        for client in clients:
            client.join()
    assert wrong == []
    assert count[0] > 60


@pytest.mark.nightly
@pytest.mark.nightly
@pytest.mark.fault(15)
def test_a_storm_of_activations_fails_no_request(start: Start, three: Path) -> None:
    service = start(workers=2)
    with Traffic(service.urls[0]).flowing(4) as traffic:
        time.sleep(1)
        steady = [took for _, took, _, _ in traffic.answers]
        begun = time.monotonic()
        for place in range(20):
            assert activate(service, three, f"v{place % 3 + 1}").status_code == 200
    storm = [took for at, took, _, _ in traffic.answers if at > begun]
    assert traffic.broken == []
    assert traffic.statuses() == {200}
    assert {version for *_, version in traffic.answers} == {"v1", "v2", "v3"}
    # Clients, service and the checks of versions share two cores here; the benchmark has the real bound.
    assert statistics.quantiles(storm, n=100)[98] < 20 * statistics.quantiles(steady, n=100)[98] + 0.1


def test_a_version_that_was_never_live_can_not_be_asked_for(start: Start, three: Path) -> None:
    service = start(workers=2)
    for version in ("v2", "nonsense", "../v1"):
        answer = service.client.post("/v1/recommend", json={"min_version": version})
        assert answer.status_code == (422 if "/" in version else 409)
        assert "never live" in answer.json()["error"]["message"]
    assert activate(service, three, "v2").status_code == 200
    for version in ("v1", "v2"):
        answer = service.client.post("/v1/recommend", json={"min_version": version})
        assert answer.json()["version"] == "v2"


@pytest.mark.nightly
@pytest.mark.fault(16)
@pytest.mark.parametrize("newest", ["sound", "damaged", "deleted"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_way_back_takes_one_call_and_at_most_a_second(
    start: Start, three: Path, newest: str, restarted: bool
) -> None:
    service = start(workers=2)
    assert activate(service, three, "v2").status_code == 200
    if restarted:
        service.stop()
        service = start(workers=2)
    if newest == "damaged":
        damage(three, "v2")
    if newest == "deleted":
        for path in (three / "v2").iterdir():
            path.unlink()
    begun = time.monotonic()
    answer = admin(service, three, "rollback")
    took = time.monotonic() - begun
    assert answer.json() == {"version": "v1", "previous": "v2"}
    assert took < 1.0
    assert {ask(service)["version"] for _ in range(20)} == {current(three)} == {"v1"}


@pytest.mark.fault(16)
def test_a_start_finds_the_version_before_where_the_newest_is_damaged(start: Start, three: Path) -> None:
    service = start()
    assert activate(service, three, "v2").status_code == 200
    service.stop()
    damage(three, "v2", "golden.json")
    again = start()
    assert "serves version v1" in again.greeting
    last = json.loads((three / "activations.jsonl").read_text().splitlines()[-1])
    assert (last["version"], last["who"], last["previous"]) == ("v1", "fallback", "v2")
    assert "golden.json" in last["words"]


@pytest.mark.fault(11)
def test_a_version_that_memory_has_no_room_for_is_refused_before_it_is_opened(
    start: Start, three: Path
) -> None:
    service = start(memory_factor=1e9)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "needs about" in message
    assert message.endswith("version v1 stays live")
    assert current(three) == "v1"
    assert metric(service, 'turret_reload_failures_total{reason="memory"}') == 1
    assert service.client.get("/readyz").json()["version"] == "v1"
    (kept,) = (one for one in service.client.get("/v1/versions").json()["versions"] if one["version"] == "v2")
    assert [check["name"] for check in kept["gate"]["checks"]] == ["memory"]


@pytest.mark.fault(11)
def test_a_check_that_is_killed_for_its_memory_refuses_the_version(start: Start, three: Path) -> None:
    """It has a process of its own: the workers, and what they serve, are left alone."""
    service = start(workers=2)
    workers = set(children(service.process.pid))
    killed = threading.Event()

    def kill_the_check() -> None:
        while not killed.is_set():
            for pid in set(children(service.process.pid)) - workers:
                os.kill(pid, signal.SIGKILL)
                killed.set()

    killer = threading.Thread(target=kill_the_check)
    killer.start()
    answer = activate(service, three, "v2")
    killed.set()
    killer.join()
    assert answer.status_code == 409
    assert "ended by SIGKILL" in answer.json()["error"]["message"]
    assert set(children(service.process.pid)) == workers
    assert activate(service, three, "v2").status_code == 200


@pytest.mark.fault(27)
def test_what_is_no_name_of_a_version_opens_nothing(start: Start, three: Path) -> None:
    service = start(workers=1)
    names = (
        "../v2",
        "/etc/passwd",
        "http://127.0.0.1:1/v2",
        "v2/../v1",
        "current",
        ".gate",
        "v2\0",
        "%2e%2e",
    )
    for version in names:
        for path, body in (
            ("activate", {"version": version}),
            ("routes", {"canary": {"version": version, "share": 0.5}}),
            ("routes", {"shadow": {"version": version, "share": 0.5}}),
        ):
            answer = admin(service, three, path, body)
            assert answer.status_code == 422, (version, path)
            assert answer.json()["error"]["field"].endswith("version")
    assert current(three) == "v1"
    assert sorted(path.name for path in three.glob(".gate/*")) == []


def test_answers_that_have_nothing_in_common_are_refused_unless_forced(start: Start, three: Path) -> None:
    service = start(overlap_minimum=0.2)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "0.000 in common" in answer.json()["error"]["message"]
    assert metric(service, 'turret_reload_failures_total{reason="overlap"}') == 1
    assert activate(service, three, "v2", force=True).json()["version"] == "v2"
    last = json.loads((three / "activations.jsonl").read_text().splitlines()[-1])
    assert (last["forced"], last["failed"]) == (True, ["overlap"])


def test_the_header_is_what_the_service_wrote(start: Start, bundles: Path) -> None:
    """Else every refusal above would be one of a wrong key."""
    assert admin_of(start(), bundles)["Authorization"] != "Bearer "
