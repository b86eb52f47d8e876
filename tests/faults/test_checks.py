"""Workers that can't be begun, and activations beside one that is stopped."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.service_calls import admin, answered_versions, children, client_of, kill_workers
from tests.support.service_process import FIRST, Start

pytestmark = pytest.mark.nightly


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


def test_a_worker_that_can_not_be_begun_is_begun_later(start: Start) -> None:
    """The other one answers meanwhile."""
    service = start(workers=2, before=FAIL)
    kill_workers(service, children(service.process.pid)[0])
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
