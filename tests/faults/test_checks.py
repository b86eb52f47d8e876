"""Checks of a version that take too long or too much, and what else reaches the supervisor."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest

from tests.support.service_calls import (
    activate,
    admin,
    answered_versions,
    ask,
    children,
    client_of,
    listeners,
)
from tests.support.service_process import FIRST, Process, Start
from tests.support.until import until

pytestmark = pytest.mark.nightly

# Python imports this module at its start, also that of the process of a check.
SITE = """
import os, signal, time
from turret.service.versions import gate
real = gate._Gate.golden
def golden(self):
    {}
    return real(self)
gate._Gate.golden = golden
"""
Besides = Callable[[str], str]


@pytest.fixture
def besides(tmp_path: Path) -> Besides:
    """What is in front of a service whose checks do something besides."""
    folder = tmp_path / "site"
    folder.mkdir()

    def write(work: str) -> str:
        (folder / "sitecustomize.py").write_text(SITE.format(work))
        return f"import sys\nsys.path.insert(0, {str(folder)!r})\n"

    return write


def checks_of(workers: list[int]) -> list[int]:
    return [check for worker in workers for check in children(worker)]


def until_replaced(service: Process, victim: int) -> None:
    """Wait until another of two workers has taken the place of one."""
    until(lambda: len(set(children(service.process.pid)) - {victim}) == 2, "another worker has begun")


@pytest.mark.fault(63)
@pytest.mark.fault(64)
def test_a_forced_check_that_overruns_its_time_lets_no_other_activation_in(
    start: Start, three: Path, tmp_path: Path, besides: Besides
) -> None:
    """The same version is checked again, without force, when the first check could go on."""
    go = tmp_path / "go"
    waits = f"while not os.path.exists({str(go)!r}): time.sleep(.01)"
    service = start(gate_seconds=2, overlap_minimum=0.1, before=besides(waits))
    forced = activate(service, three, "v2", force=True)
    assert "after 2 seconds" in forced.json()["error"]["message"]
    go.touch()
    plain = activate(service, three, "v2")
    assert (forced.status_code, plain.status_code) == (409, 409)
    assert "in common" in plain.json()["error"]["message"]


@pytest.mark.fault(63)
def test_a_check_ends_with_the_worker_that_asked_for_it(
    start: Start, three: Path, tmp_path: Path, besides: Besides
) -> None:
    begun = tmp_path / "begun"
    before = besides(f"open({str(begun)!r}, 'w').close(); signal.pause()")
    service = start(workers=1, gate_seconds=600, before=before)
    workers = children(service.process.pid)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(activate, service, three, "v2")
        until(begun.exists, "it is among its checks")
        (check,) = checks_of(workers)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: not Path(f"/proc/{check}").exists(), "the check has ended")
        assert isinstance(asked.exception(), httpx2.HTTPError)
    service.until_said("restarting")
    until(lambda: listeners(service), "another worker answers")
    assert ask(service)["version"] == "v1"


# What a worker sends its supervisor as soon as it serves.


# The supervisor's forks fail three times, from its third worker on.
FAIL = f"""{FIRST}
import errno
real, calls = os.fork, []
def fork():
    calls.append(1)
    if 3 <= len(calls) < 6:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return real()
os.fork = fork
"""


@pytest.mark.fault(65)
def test_a_worker_that_can_not_be_begun_is_begun_later(start: Start) -> None:
    """The other one answers meanwhile."""
    service = start(workers=2, before=FAIL)
    workers = children(service.process.pid)
    os.kill(workers[0], signal.SIGKILL)
    until_replaced(service, workers[0])
    assert answered_versions(service, 10) == {"v1"}
    status, complaints = service.stop()
    assert status == 0
    assert complaints.count("the system gives no process (Resource temporarily unavailable); restarting") == 3


@pytest.mark.fault(66)
def test_activations_do_not_queue_behind_one_that_waits_for_a_stopped_worker(
    start: Start, three: Path
) -> None:
    """Each waits for the others to follow, but not the next for that: all are over while it is stopped."""
    service = start(workers=2, activation_seconds=10)  # a worker that is stopped for 15 seconds is killed
    pid, other = children(service.process.pid)
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(client_of(service, other))) for _ in range(4)]
        os.kill(pid, signal.SIGSTOP)
        opened.callback(os.kill, pid, signal.SIGCONT)
        pool = opened.enter_context(ThreadPoolExecutor(4))
        asked = [
            pool.submit(admin, service, three, "activate", {"version": version}, client)
            for version, client in zip(["v2", "v3", "v2", "v3"], clients, strict=True)
        ]
        answers = [one.result() for one in asked]
    assert [answer.json()["behind"] for answer in answers] == [[pid]] * 4
