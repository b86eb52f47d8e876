"""Workers: changes and figures hold in all of them, others replace those that die, and signals end them."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import contents
from tests.support.item_towers import placed, with_item_tower
from tests.support.service_calls import (
    activate,
    address,
    anew,
    answer_of,
    answered_versions,
    children,
    kill_workers,
    listeners,
)
from tests.support.service_process import FIRST, Process, Start, plain_client
from tests.support.until import until
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import current

ASK = (
    b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)


@pytest.mark.process
@pytest.mark.fault(9)
def test_the_live_folder_can_be_deleted(start: Start, bundles: Path) -> None:
    """And when the supervisor is killed, nothing is left that holds the port or writes events."""
    service = start(workers=2)
    before = service.client.post("/v1/recommend", json={"history": [101]}).json()["items"]
    workers = children(service.process.pid)
    shutil.rmtree(bundles / "v1")
    for _ in range(20):
        assert anew(service, "POST", "/v1/recommend", json={"history": [101]}).json()["items"] == before
    assert children(service.process.pid) == workers
    service.process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the workers have ended")


@pytest.mark.process
@pytest.mark.fault(9)
def test_a_file_that_is_cut_off_under_the_map_costs_a_worker_and_brings_the_version_before_back(
    start: Start, tmp_path: Path
) -> None:
    """SIGBUS ends who reads it. The next worker refuses the version, and all go back to the one before."""
    root = tmp_path / "large"
    # Large enough for pages that no request has touched before the file is cut.
    publish(root, contents("v1", ids=range(1000, 21000), dimension=32))
    publish(root, contents("v2", ids=range(1000, 21000), dimension=32, seed=1))
    service = start(root, workers=2)
    assert activate(service, root, "v2").status_code == 200
    vectors = root / "v2" / "item_vectors.npy"
    vectors.chmod(0o644)
    os.truncate(vectors, 4096)

    def is_back() -> bool:
        for item in (1001, 20_500, 20_999):  # each in a page of its own
            try:
                answer = service.client.post("/v1/recommend", json={"history": [item]})
            except Exception:  # the worker that answered has just died
                return False
            if answer.json()["version"] != "v1":
                return False
        return current(root) == "v1" and len(children(service.process.pid)) == 2

    until(is_back, "the version before is back")
    until(lambda: answered_versions(service) == {"v1"}, "in both workers")
    _, complaints = service.stop()
    assert "SIGBUS; restarting" in complaints
    assert "version v2 can't be opened" in complaints


@pytest.mark.nightly
def test_workers_that_can_not_start_end_the_service_with_a_sentence(start: Start, bundles: Path) -> None:
    """As after the last good version was removed: no respawning for ever."""
    service = start()
    (worker,) = children(service.process.pid)
    shutil.rmtree(bundles / "v1")
    os.kill(worker, signal.SIGKILL)
    status = service.process.wait()
    complaints = service.process.stderr.read() if service.process.stderr else ""
    assert status == 1
    assert "failed to start" in complaints.splitlines()[-1]
    assert "v1" in complaints.splitlines()[-1]


def until_it_drains(service: Process) -> None:
    until(lambda: all(anew(service, "GET", "/readyz").status_code == 503 for _ in range(10)), "it drains")


@pytest.mark.process
@pytest.mark.fault(13, 54)
def test_a_service_that_is_told_to_end_says_so_and_answers_on(start: Start) -> None:
    """Each answer is the last of its connection, also of a kept one; a second signal ends the wait."""
    service = start(workers=2, drain_delay=600)
    with ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(address(service))) for _ in range(8)]
        for connection in connections:
            connection.sendall(ASK)
            while not connection.recv(65536).endswith(b"}"):
                pass
        service.process.send_signal(signal.SIGTERM)
        until_it_drains(service)
        connections += [opened.enter_context(socket.create_connection(address(service))) for _ in range(8)]
        for connection in connections:
            connection.sendall(ASK)
            answer = answer_of(connection)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"connection: close" in answer.lower()
    assert service.process.poll() is None
    assert service.stop(signal.SIGINT) == (0, "")


@pytest.mark.nightly
@pytest.mark.fault(55)
def test_a_worker_that_is_killed_while_it_drains_takes_no_other_along(start: Start) -> None:
    """Nor does a third signal wait for one that does not end."""
    service = start(workers=3, drain_delay=600)
    service.process.send_signal(signal.SIGTERM)
    until_it_drains(service)
    killed, stopped, _ = children(service.process.pid)
    os.kill(killed, signal.SIGKILL)
    service.until_said("SIGKILL")
    until(lambda: listeners(service) == 2, "one less listens")
    os.kill(stopped, signal.SIGSTOP)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: listeners(service) == 1, "the other one has ended")
    assert service.stop()[0] == 0  # the third signal


# The supervisor's forks fail three times, from its third worker on.
FAIL = f"""{FIRST}
import errno, itertools
real, calls = os.fork, itertools.count(1)
def fork():
    if 3 <= next(calls) < 6:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return real()
os.fork = fork
"""


@pytest.mark.nightly
def test_a_worker_that_can_not_be_begun_is_begun_later(start: Start) -> None:
    """The other one answers meanwhile."""
    service = start(workers=2, before=FAIL)
    kill_workers(service, children(service.process.pid)[0])
    assert answered_versions(service, 10) == {"v1"}
    status, complaints = service.stop()
    assert status == 0
    assert complaints.count("the system gives no process (Resource temporarily unavailable); restarting") == 3


def ids(answer: httpx2.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def everywhere(service: Process) -> Iterator[list[list[int]]]:
    """Ids by the towers, by popularity and near an item, on connections that are spread over the workers."""
    for _ in range(24):
        with plain_client(service.urls[0]) as client:
            bodies = [{"history": [101], "k": 61}, {"k": 61}]
            answers = [client.post("/v1/recommend", json=body) for body in bodies]
            yield [*map(ids, answers), ids(client.get("/v1/items/101/similar?k=61"))]


@pytest.mark.process
@pytest.mark.fault(30)
def test_a_change_holds_in_every_worker_in_the_next_answer(start: Start, tmp_path: Path) -> None:
    """An item that is withdrawn and put back, and one that the bundle doesn't have."""
    publish(tmp_path / "items", with_item_tower(contents()))
    near_101 = {"features": placed(contents().item_vectors[1])}
    service = start(tmp_path / "items", workers=3)
    for _ in range(4):
        assert service.client.delete("/v1/items/107").status_code == 200
        assert all(107 not in found for answers in everywhere(service) for found in answers)
        assert service.client.put("/v1/items/107", json=near_101).status_code == 200
        assert all(107 in by_towers for by_towers, *_ in everywhere(service))
    assert service.client.put("/v1/items/900", json=near_101).json()["vector"] == "features"
    assert all(by_towers[0] == 900 for by_towers, *_ in everywhere(service))
    assert service.client.delete("/v1/items/900").status_code == 200
    assert all(900 not in found for answers in everywhere(service) for found in answers)


def figures(service: Process) -> dict[tuple[str, str], float]:
    """Every sample of one scrape by its name and its labels."""
    text = anew(service, "GET", "/metrics").text
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def only(found: dict[tuple[str, str], float], name: str, **labels: str) -> float:
    return found.get((name, json.dumps(labels, sort_keys=True)), 0.0)


@pytest.mark.process
@pytest.mark.fault(31)
def test_a_scrape_of_any_worker_tells_of_all_and_nothing_goes_back_when_one_is_killed(start: Start) -> None:
    service = start(workers=2)
    for _ in range(40):
        assert anew(service, "POST", "/v1/recommend", json={"history": [101]}).status_code == 200
    answered = {"route": "/v1/recommend", "status": "200"}
    until(lambda: only(figures(service), "turret_requests_total", **answered) == 40, "all are counted")
    before = figures(service)
    assert only(before, "turret_answers_total", source="towers") == 40
    assert only(before, "turret_workers") == 2
    assert only(before, "turret_workers_serving", version="v1") == 2
    for victim in children(service.process.pid):  # each of the two in turn
        kill_workers(service, victim)
        until(lambda: only(figures(service), "turret_workers") == 2, "the other one exports figures")
        after = figures(service)
        counters = [key for key in before if key[0].endswith(("_total", "_bucket", "_count", "_sum"))]
        assert [key for key in counters if after.get(key, 0.0) < before[key]] == []
        assert only(after, "turret_requests_total", **answered) == 40
        before = after
    assert only(before, "turret_worker_starts_total") == 4
    until(lambda: only(figures(service), "turret_in_flight") == 1, "the scrape itself alone is running")
