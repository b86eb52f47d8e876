"""Checks of a version that take too long or too much, and what else reaches the supervisor."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.support.service_calls import activate, answered_versions, ask, children
from tests.support.service_process import Process, Start
from tests.support.until import until
from turret.tower.format.pointer import current

pytestmark = pytest.mark.nightly

# In front of the service, which sets this before it imports what would start threads.
FIRST = "import os\nfrom turret.service.process import launch\nos.environ.update(launch._ENVIRONMENT)\n"
# What the checks do besides, in their own process.
BESIDES = f"""{FIRST}
import signal, time, turret.service.versions.gate
real = turret.service.versions.gate._Gate.golden
def golden(self):
    {{}}
    return real(self)
turret.service.versions.gate._Gate.golden = golden
"""
NEVER_ENDS = BESIDES.format("signal.pause()")


def waits(begun: Path, go: Path) -> str:
    """A check that makes one file, and ends when there is the other."""
    waiting = f"while not os.path.exists({str(go)!r}): time.sleep(.01)"
    return BESIDES.format(f"open({str(begun)!r}, 'w').close()\n    {waiting}")


def checks_of(service: Process, workers: list[int]) -> set[int]:
    return set(children(service.process.pid)) - set(workers)


def until_replaced(service: Process, victim: int) -> None:
    """Wait until another of two workers has taken the place of one."""
    until(lambda: len(set(children(service.process.pid)) - {victim}) == 2, "another worker has begun")


@pytest.mark.fault(63)
def test_a_check_that_takes_too_long_is_killed_and_several_tries_leave_none(
    start: Start, three: Path
) -> None:
    service = start(workers=2, gate_seconds=0.5, before=NEVER_ENDS)
    workers = children(service.process.pid)
    for _ in range(3):
        answer = activate(service, three, "v2")
        assert answer.status_code == 409
        assert "after 0.5 seconds" in answer.json()["error"]["message"]
        until(lambda: not checks_of(service, workers), "the check has ended")
    assert children(service.process.pid) == workers


@pytest.mark.fault(63)
def test_a_check_ends_with_the_worker_that_asked_for_it(start: Start, three: Path) -> None:
    service = start(workers=1, gate_seconds=600, before=NEVER_ENDS)
    workers = children(service.process.pid)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(activate, service, three, "v2")
        (check,) = until(lambda: checks_of(service, workers), "a check has begun")
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: not Path(f"/proc/{check}").exists(), "the check has ended")
        assert isinstance(asked.exception(), httpx2.HTTPError)
    assert ask(service)["version"] == "v1"


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("besides", "words"),
    [
        # Two gigabytes for a version of 20 KB: the limit is of its size.
        ("bytearray(2 << 30)", "the memory is full"),
        # As in a library that ends the process where memory can't be had.
        ("try: bytearray(2 << 30)\n    except MemoryError: os.abort()", "ended by SIGABRT"),
        ("raise RuntimeError('no new thread')", "RuntimeError: no new thread"),
    ],
)
def test_a_check_that_fails_of_itself_is_refused_in_words(
    start: Start, three: Path, besides: str, words: str
) -> None:
    service = start(workers=1, before=BESIDES.format(besides))
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert words in answer.json()["error"]["message"]
    assert current(three) == "v1"


@pytest.mark.fault(63)
def test_a_check_has_nothing_of_the_service_but_the_socket_for_its_answer(
    start: Start, three: Path, tmp_path: Path
) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    service = start(workers=2, admin_port=0, before=waits(begun, go))
    workers = children(service.process.pid)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(activate, service, three, "v2")
        until(begun.exists, "it is among its checks")
        (check,) = checks_of(service, workers)
        assert os.getpriority(os.PRIO_PROCESS, check) == 19
        held = [os.readlink(one) for one in Path(f"/proc/{check}/fd").iterdir()]
        limits = Path(f"/proc/{check}/limits").read_text()
        assert Path(f"/proc/{check}/oom_score_adj").read_text().strip() == "1000"
        go.touch()
        assert asked.result().status_code == 200
    assert sum(name.startswith("socket:") for name in held) == 1
    assert not any("memfd" in name or "anon_inode" in name or "sqlite" in name for name in held)
    for name in ("Max cpu time", "Max data size", "Max core file size"):
        (line,) = (line for line in limits.splitlines() if line.startswith(name))
        assert line.removeprefix(name).split()[0] != "unlimited"


@pytest.mark.fault(64)
def test_the_late_report_of_a_forced_check_passes_for_no_other(start: Start, three: Path) -> None:
    """A check takes 1.5 s and is given up after 1: the first is forced, and its report would come while the
    second, which is not, is waited for."""
    before = BESIDES.format("time.sleep(1.5)")
    service = start(workers=1, gate_seconds=1, overlap_minimum=0.9, before=before)
    workers = children(service.process.pid)
    assert activate(service, three, "v2", force=True).status_code == 409
    assert activate(service, three, "v2").status_code == 409
    until(lambda: not checks_of(service, workers), "both checks have ended")
    assert current(three) == "v1"


# What a worker sends its supervisor as soon as it serves: all of it one message after the other.
SAY = f"""{FIRST}
import turret.service.process.worker
messages = [
    b"x" * 70_000,
    b"7",
    b"[" * 60_000,
    b"\\xff",
    b'{{"gate": {{"version": 1}}}}',
    b'{{"gate": {{"root": "/", "version": "v2"}}}}',
    b'{{"ready": [], "failed": {{}}}}',
    b'{{"failed": "' + b"x" * 60_000 + b'"}}',
    b"",
]
real = turret.service.process.worker._follow
async def follow(servers, state, seat):
    for message in messages:
        seat.channel.send(message)
    await real(servers, state, seat)
turret.service.process.worker._follow = follow
"""


@pytest.mark.fault(65)
def test_what_a_worker_sends_ends_nobody(start: Start) -> None:
    service = start(workers=2, before=SAY)
    workers = children(service.process.pid)
    assert answered_versions(service, 5) == {"v1"}
    os.kill(workers[0], signal.SIGKILL)
    until_replaced(service, workers[0])
    status, complaints = service.stop()
    assert status == 0
    assert "sent an invalid message" in complaints
    assert "requested a check" in complaints


# The supervisor's calls of the system fail three times, from its second worker on.
FAIL = f"""{FIRST}
import errno, turret.service.process.supervisor
calls = [0]
def failing(real, number):
    def call(*given, **more):
        calls[0] += 1
        if {{first}} <= calls[0] < {{first}} + 3:
            raise OSError(number, os.strerror(number))
        return real(*given, **more)
    return call
{{target}} = failing({{target}}, {{number}})
"""


@pytest.mark.fault(65)
@pytest.mark.parametrize(
    ("target", "number"),
    [("os.fork", "errno.EAGAIN"), ("turret.service.process.supervisor.socket.socketpair", "errno.EMFILE")],
)
def test_a_worker_that_can_not_be_begun_is_begun_later(start: Start, target: str, number: str) -> None:
    """The other one answers meanwhile."""
    first = 4 if "socketpair" in target else 3  # one pair is for the supervisor's own signals
    service = start(workers=2, before=FAIL.format(target=target, number=number, first=first))
    workers = children(service.process.pid)
    os.kill(workers[0], signal.SIGKILL)
    until_replaced(service, workers[0])
    assert answered_versions(service, 10) == {"v1"}
    status, complaints = service.stop()
    assert status == 0
    assert complaints.count("retrying") == 3


@pytest.mark.fault(66)
def test_activations_do_not_queue_behind_one_that_waits_for_a_stopped_worker(
    start: Start, three: Path
) -> None:
    """Each waits for the others to follow, but not the next for that: all are over while it is stopped."""
    service = start(workers=2, activation_seconds=2)
    pid = children(service.process.pid)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda name: activate(service, three, name), ["v2", "v3", "v2", "v3"]))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [answer.json()["behind"] for answer in answers] == [[pid]] * 4
