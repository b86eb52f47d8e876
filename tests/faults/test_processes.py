"""Workers that die, memory maps that lose their files, signals, and the end of the service."""

import os
import shutil
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.support.service_calls import activate, address, anew, answered_versions, children, listeners
from tests.support.service_process import Start
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
    before = service.client.post("/v1/recommend", json={"history": [101]}).json()
    workers = children(service.process.pid)
    shutil.rmtree(bundles / "v1")
    for _ in range(20):
        assert anew(service, "POST", "/v1/recommend", json={"history": [101]}).json() == before
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


def answer_on(connection: socket.socket) -> bytes:
    """What comes on a connection until it is closed."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


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
        until(
            lambda: all(anew(service, "GET", "/readyz").status_code == 503 for _ in range(10)), "it says so"
        )
        connections += [opened.enter_context(socket.create_connection(address(service))) for _ in range(8)]
        for connection in connections:
            connection.sendall(ASK)
            answer = answer_on(connection)
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
    until(lambda: all(anew(service, "GET", "/readyz").status_code == 503 for _ in range(10)), "it drains")
    killed, stopped, _ = children(service.process.pid)
    os.kill(killed, signal.SIGKILL)
    service.until_said("SIGKILL")
    until(lambda: listeners(service) == 2, "one less listens")
    os.kill(stopped, signal.SIGSTOP)
    service.process.send_signal(signal.SIGTERM)
    until(lambda: listeners(service) == 1, "the other one has ended")
    assert service.stop()[0] == 0  # the third signal
