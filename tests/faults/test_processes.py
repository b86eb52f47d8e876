"""Workers that die, memory maps that lose their files, signals, and places where little is allowed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.faults.processes import Traffic, activate, children, metric, rss, until
from tests.support.service_process import HERE, Start
from turret.service.process.forking import describe_exit
from turret.tower.bundle.publish import BundleContents, publish
from turret.tower.format.pointer import current

Make = Callable[..., BundleContents]


@pytest.fixture
def two(bundles: Path, make_contents: Make) -> Path:
    publish(bundles, make_contents("v2", ids=range(200, 240), seed=1))
    return bundles


@pytest.mark.fault(12)
def test_a_worker_that_is_killed_under_load_costs_its_own_requests_only(start: Start, bundles: Path) -> None:
    """Another begins at once, nobody else notices, and events that were acknowledged are there."""
    service = start(workers=2)
    before = children(service.process.pid)
    assert len(before) == 2
    stored = 0
    with Traffic(service.urls[0]).flowing() as traffic:
        for killed in range(3):
            events = [
                {"event_id": f"{killed}-{n}", "user_id": 7, "item_id": 101, "time": n} for n in range(5)
            ]
            stored += service.client.post("/v1/events", json={"events": events}).json()["stored"]
            service.client.close()
            service.client = type(service.client)(base_url=service.urls[0], timeout=10, trust_env=False)
            victim = children(service.process.pid)[killed % 2]
            os.kill(victim, signal.SIGKILL)
            until(lambda: len(set(children(service.process.pid)) - {victim}) == 2)  # noqa: B023 - waits here
            time.sleep(0.3)
    assert traffic.statuses() == {200}
    assert len(traffic.answers) > 100
    # A killed worker takes the connections that it had along: at most one request of each client a time.
    assert len(traffic.broken) <= 3 * 4
    assert not set(before) & set(children(service.process.pid))
    assert service.client.get("/v1/users/7").json()["total"] == stored == 15
    status, complaints = service.stop()
    assert status == 0
    assert complaints.count("SIGKILL; restarting") == 3


@pytest.mark.fault(12)
def test_with_one_worker_too_another_takes_its_place(start: Start) -> None:
    """Connections that come meanwhile wait in the socket, which the supervisor keeps open."""
    service = start()
    (worker,) = children(service.process.pid)
    os.kill(worker, signal.SIGSEGV)
    assert service.client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    assert children(service.process.pid) != [worker]


def test_connections_that_come_at_once_are_shared(start: Start) -> None:
    """As a proxy opens them; they stay for long, so what one worker took it would have for good."""
    service = start(workers=2)
    workers = children(service.process.pid)
    before = [_sockets(pid) for pid in workers]
    host, port = service.urls[0].removeprefix("http://").split(":")
    calling = [socket.create_connection((host, int(port))) for _ in range(32)]
    until(lambda: sum(map(_sockets, workers)) == sum(before) + 32)
    taken = [_sockets(pid) - count for pid, count in zip(workers, before, strict=True)]
    for one in calling:
        one.close()
    assert min(taken) >= 10, taken


def _sockets(pid: int) -> int:
    return sum(str(one.readlink()).startswith("socket:") for one in Path(f"/proc/{pid}/fd").iterdir())


def test_further_workers_cost_little_memory(start: Start, bundles: Path) -> None:
    """What was imported is shared with the supervisor, what was mapped with each other (see docs)."""
    service = start(workers=2)
    for _ in range(50):
        service.client.post("/v1/recommend", json={"history": [101]})
    pids = [service.process.pid, *children(service.process.pid)]
    kilobytes = [rss(pid, "Private_Dirty") for pid in pids[1:]]
    assert max(kilobytes) < 60_000, kilobytes
    assert sum(rss(pid) for pid in pids) < 210_000


def test_workers_end_with_their_supervisor(start: Start) -> None:
    """However it ends: nothing is left that holds the port or writes events."""
    service = start(workers=2)
    workers = children(service.process.pid)
    service.process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


@pytest.mark.fault(9)
def test_the_live_folder_can_be_deleted(start: Start, bundles: Path) -> None:
    service = start(workers=2)
    before = service.client.post("/v1/recommend", json={"history": [101]}).json()
    workers = children(service.process.pid)
    for path in (bundles / "v1").iterdir():
        path.unlink()
    (bundles / "v1").rmdir()
    for _ in range(20):
        assert service.client.post("/v1/recommend", json={"history": [101]}).json() == before
    assert children(service.process.pid) == workers


@pytest.mark.fault(9)
def test_a_file_that_is_cut_off_under_the_map_costs_a_worker_and_brings_the_version_before_back(
    start: Start, tmp_path: Path, make_contents: Make
) -> None:
    """SIGBUS ends who reads it. The next worker refuses the version, and all go back to the one before."""
    root = tmp_path / "large"
    # Large enough for pages that no request has touched before the file is cut.
    publish(root, make_contents("v1", ids=range(1000, 21000), dimension=32))
    publish(root, make_contents("v2", ids=range(1000, 21000), dimension=32, seed=1))
    service = start(root, workers=2)
    assert activate(service, root, "v2").status_code == 200
    vectors = root / "v2" / "item_vectors.npy"
    vectors.chmod(0o644)
    os.truncate(vectors, 4096)
    versions = set()

    def is_back() -> bool:
        for item in (1001, 20_500, 20_999):  # each in a page of its own
            try:
                answer = service.client.post("/v1/recommend", json={"history": [item]})
                versions.add(answer.json()["version"])
            except Exception:  # the worker that answered has just died
                continue
        return current(root) == "v1" and versions >= {"v1"} and len(children(service.process.pid)) == 2

    until(is_back, 30)
    settled = [service.client.post("/v1/recommend", json={"history": [20_500]}).json() for _ in range(20)]
    assert {answer["version"] for answer in settled} == {"v1"}
    _, complaints = service.stop()
    assert "SIGBUS; restarting" in complaints
    assert "version v2 can't be opened" in complaints


@pytest.mark.fault(8)
def test_a_file_that_is_overwritten_in_place_raises_an_alarm(start: Start, bundles: Path) -> None:
    service = start(watch_seconds=0.1)
    vectors = bundles / "v1" / "item_vectors.npy"
    assert vectors.stat().st_mode & 0o222 == 0, "published files are read-only"
    assert metric(service, "turret_changed_files_total") == 0
    vectors.chmod(0o644)
    with vectors.open("r+b") as file:
        file.seek(200)
        file.write(b"\0" * 16)
    until(lambda: metric(service, "turret_changed_files_total") == 1)
    assert service.client.get("/readyz").status_code == 200
    time.sleep(0.5)
    assert metric(service, "turret_changed_files_total") == 1, "an alarm is raised once"
    _, complaints = service.stop()
    assert "item_vectors.npy was overwritten in place" in complaints


@pytest.mark.nightly
@pytest.mark.fault(13)
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_under_load_fails_no_request_that_comes_through_a_proxy(
    start: Start, proxy: Callable[[list[str]], str], workers: int
) -> None:
    """The proxy looks at /readyz ten times a second. Of two services behind it one is stopped."""
    services = [start(workers=workers, drain_delay=1.0) for _ in range(2)]
    with Traffic(proxy([service.urls[0] for service in services])).flowing(8) as traffic:
        time.sleep(0.7)
        begun = time.monotonic()
        services[0].client.close()
        services[0].process.send_signal(signal.SIGTERM)
        status = services[0].process.wait(15)
        took = time.monotonic() - begun
        time.sleep(0.5)
    assert status == 0
    assert took >= 1.0
    assert traffic.broken == []
    assert traffic.statuses() == {200}
    assert len(traffic.answers) > 100


@pytest.mark.fault(13)
def test_a_service_that_is_told_to_end_says_so_at_once_and_answers_on(start: Start) -> None:
    service = start(workers=2, drain_delay=60)

    def statuses(method: str, path: str) -> set[int]:
        """Those of ten connections, that both workers answer."""
        url = service.urls[0] + path
        return {httpx2.request(method, url, json={}, trust_env=False).status_code for _ in range(10)}

    service.process.send_signal(signal.SIGTERM)
    until(lambda: statuses("GET", "/readyz") == {503})
    assert statuses("POST", "/v1/recommend") == {200}
    assert service.stop(signal.SIGINT) == (0, "")


def test_a_second_signal_ends_the_wait(start: Start) -> None:
    service = start(drain_delay=60)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert service.process.poll() is None
    assert service.stop(signal.SIGINT) == (0, "")


def test_a_worker_alone_is_not_ended_by_the_signals_of_a_terminal(start: Start) -> None:
    service = start(workers=2)
    workers = children(service.process.pid)
    for pid in workers:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)
    assert children(service.process.pid) == workers
    assert service.stop() == (0, "")


def test_workers_that_can_not_start_end_the_service_with_a_sentence(start: Start, bundles: Path) -> None:
    """As after the last good version was removed: no respawning for ever."""
    service = start()
    (worker,) = children(service.process.pid)
    shutil.rmtree(bundles / "v1")
    os.kill(worker, signal.SIGKILL)
    status = service.process.wait(30)
    complaints = service.process.stderr.read() if service.process.stderr else ""
    assert status == 1
    assert "failed to start" in complaints.splitlines()[-1]
    assert "v1" in complaints.splitlines()[-1]


@pytest.mark.fault(28)
def test_there_is_one_thread_before_the_fork(start: Start) -> None:
    """Threads of OpenMP, OpenBLAS and ONNX Runtime would not survive it; the supervisor never has any."""
    service = start(workers=2)
    assert service.client.post("/v1/recommend", json={"history": [101]}).status_code == 200
    supervisor = Path(f"/proc/{service.process.pid}/task")
    assert len(list(supervisor.iterdir())) == 1


@pytest.mark.fault(28)
def test_a_fork_beside_threads_is_refused() -> None:
    code = """
import threading, time
from turret.service.process.forking import check_threads
threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
check_threads()
"""
    run = subprocess.run(
        [sys.executable, "-c", "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n" + code],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
    )
    assert "threads run before the fork of the workers" in run.stderr


def test_it_is_said_how_a_process_ended() -> None:
    assert describe_exit(-9) == "by SIGKILL"
    assert describe_exit(3) == "with status 3"
