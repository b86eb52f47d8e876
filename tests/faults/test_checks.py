"""Checks of a version that take too long or too much, and what else reaches the supervisor."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.faults.processes import activate, admin, children, until
from tests.faults.versions import ask
from tests.support.service_process import Process, Start
from turret.tower.format.pointer import current

# In front of the service, which sets this before it imports what would start threads.
FIRST = "import os\nfrom turret.service.process import launch\nos.environ.update(launch._ENVIRONMENT)\n"
# What the checks do besides, in their own process.
SLOW = f"""{FIRST}
import time, turret.service.models.gate
real = turret.service.models.gate._Gate.golden
def golden(self):
    {{besides}}
    return real(self)
turret.service.models.gate._Gate.golden = golden
"""


def besides(what: str) -> str:
    return SLOW.format(besides=what)


def checks_of(service: Process, workers: list[int]) -> set[int]:
    return set(children(service.process.pid)) - set(workers)


@pytest.mark.nightly
@pytest.mark.fault(63)
def test_a_check_that_takes_too_long_is_killed_and_several_tries_leave_none(
    start: Start, three: Path
) -> None:
    service = start(workers=2, gate_seconds=0.5, before=besides("time.sleep(60)"))
    workers = children(service.process.pid)
    for _ in range(3):
        begun = time.monotonic()
        answer = activate(service, three, "v2")
        assert answer.status_code == 409
        assert "after 0.5 seconds" in answer.json()["error"]["message"]
        assert time.monotonic() - begun < 2
        until(lambda: not checks_of(service, workers), 1)
    assert children(service.process.pid) == workers


@pytest.mark.fault(63)
def test_a_check_ends_with_the_worker_that_asked_for_it(start: Start, three: Path) -> None:
    service = start(workers=1, gate_seconds=60, before=besides("time.sleep(60)"))
    workers = children(service.process.pid)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(activate, service, three, "v2")
        until(lambda: len(checks_of(service, workers)) == 1)
        (check,) = checks_of(service, workers)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: not Path(f"/proc/{check}").exists(), 5)
        assert isinstance(asked.exception(10), httpx2.HTTPError)
    assert ask(service)["version"] == "v1"


@pytest.mark.fault(63)
def test_a_check_that_takes_too_much_memory_is_refused_in_words(start: Start, three: Path) -> None:
    """Two gigabytes for a version of 20 KB: the limit is of its size."""
    service = start(workers=1, before=besides("bytearray(2 << 30)"))
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "the memory is full" in answer.json()["error"]["message"]
    assert current(three) == "v1"


@pytest.mark.fault(63)
def test_a_check_that_dies_of_its_memory_is_refused_in_words(start: Start, three: Path) -> None:
    """As in a library that ends the process where memory can't be had."""
    ends = "import os\n    try: bytearray(2 << 30)\n    except MemoryError: os.abort()"
    service = start(workers=1, before=besides(ends))
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "ended by SIGABRT" in answer.json()["error"]["message"]


@pytest.mark.fault(63)
def test_a_check_raises_what_no_one_foresaw(start: Start, three: Path) -> None:
    service = start(workers=1, before=besides("raise RuntimeError('can not start new thread')"))
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "RuntimeError: can not start new thread" in answer.json()["error"]["message"]


@pytest.mark.fault(63)
def test_a_check_has_nothing_of_the_service_but_the_socket_for_its_answer(start: Start, three: Path) -> None:
    service = start(workers=2, admin_port=0, before=besides("time.sleep(1)"))
    workers = children(service.process.pid)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(activate, service, three, "v2")
        until(lambda: len(checks_of(service, workers)) == 1)
        (check,) = checks_of(service, workers)
        until(lambda: Path(f"/proc/{check}/limits").exists())
        until(lambda: os.getpriority(os.PRIO_PROCESS, check) == 19)
        time.sleep(0.3)  # it sleeps among its checks
        held = [os.readlink(one) for one in Path(f"/proc/{check}/fd").iterdir()]
        limits = Path(f"/proc/{check}/limits").read_text()
        assert Path(f"/proc/{check}/oom_score_adj").read_text().strip() == "1000"
        assert asked.result().status_code == 200
    assert sum(name.startswith("socket:") for name in held) == 1
    assert not any("memfd" in name or "anon_inode" in name or "sqlite" in name for name in held)
    for name in ("Max cpu time", "Max data size", "Max core file size"):
        (line,) = (line for line in limits.splitlines() if line.startswith(name))
        assert line.removeprefix(name).split()[0] != "unlimited"


@pytest.mark.nightly
@pytest.mark.fault(64)
def test_the_late_report_of_a_forced_check_passes_for_no_other(start: Start, three: Path) -> None:
    """A check takes 1.5 s and is given up after 1: the first is forced, and its report would come while the
    second, which is not, is waited for."""
    service = start(workers=1, gate_seconds=1, overlap_minimum=0.9, before=besides("time.sleep(1.5)"))
    assert activate(service, three, "v2", force=True).status_code == 409
    assert activate(service, three, "v2").status_code == 409
    time.sleep(1)
    assert current(three) == "v1"


# What a worker sends its supervisor as soon as it serves.
SAY = f"""{FIRST}
import turret.service.process.worker
real = turret.service.process.worker._follow
async def follow(servers, state, seat):
    seat.channel.send({{message}})
    await real(servers, state, seat)
turret.service.process.worker._follow = follow
"""


@pytest.mark.fault(65)
@pytest.mark.parametrize(
    "message",
    [
        "b'x' * 70_000",
        "b''",
        "b'7'",
        "b'[' * 60_000",
        "b'\\xff'",
        'b\'{"gate": {"version": 1}}\'',
        'b\'{"gate": {"root": "/", "version": "v2"}}\'',
        "b'{\"failed\": \"' + b'x' * 60_000 + b'\"}'",
        'b\'{"ready": [], "failed": {}}\'',
    ],
)
def test_what_a_worker_sends_ends_nobody(start: Start, message: str) -> None:
    service = start(workers=2, before=SAY.format(message=message))
    workers = children(service.process.pid)
    for _ in range(5):
        assert ask(service)["version"] == "v1"
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: len(set(children(service.process.pid)) - {workers[0]}) == 2)
    status, complaints = service.stop()
    assert status == 0
    if not message.startswith("b'{\"failed"):
        assert "sent an invalid message" in complaints or "requested a check" in complaints


# The supervisor's calls of the system fail a few times, from its second worker on.
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
    [
        ("os.fork", "errno.EAGAIN"),
        ("os.fork", "errno.ENOMEM"),
        ("turret.service.process.supervisor.socket.socketpair", "errno.EMFILE"),
    ],
)
def test_a_worker_that_can_not_be_begun_is_begun_later(start: Start, target: str, number: str) -> None:
    """The other one answers meanwhile."""
    first = 4 if "socketpair" in target else 3  # one pair is for the supervisor's own signals
    service = start(workers=2, before=FAIL.format(target=target, number=number, first=first))
    workers = children(service.process.pid)
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: len(set(children(service.process.pid)) - {workers[0]}) == 2)
    assert {ask(service)["version"] for _ in range(10)} == {"v1"}
    status, complaints = service.stop()
    assert status == 0
    assert complaints.count("retrying") == 3


@pytest.mark.fault(65)
def test_a_check_that_can_not_be_begun_is_refused_in_words(start: Start, three: Path) -> None:
    failing = FAIL.format(target="os.fork", number="errno.ENOMEM", first=3)
    service = start(workers=2, before=failing)
    answer = activate(service, three, "v2")
    assert answer.status_code == 409
    assert "Cannot allocate memory" in answer.json()["error"]["message"]
    for _ in range(2):
        activate(service, three, "v2")
    assert activate(service, three, "v2").status_code == 200


@pytest.mark.fault(65)
def test_a_worker_that_ends_by_a_signal_without_a_name_ends_nobody_else(start: Start) -> None:
    service = start(workers=2)
    workers = children(service.process.pid)
    os.kill(workers[0], 40)
    until(lambda: len(set(children(service.process.pid)) - {workers[0]}) == 2)
    status, complaints = service.stop()
    assert status == 0
    assert "by signal 40" in complaints


@pytest.mark.nightly
@pytest.mark.fault(66)
@pytest.mark.parametrize("call", ["activate", "rollback", "routes"])
def test_no_call_waits_longer_for_its_turn_than_is_set(start: Start, three: Path, call: str) -> None:
    """One activation takes three seconds; those that queue behind it have half a second, all together."""
    bodies = {"activate": {"version": "v3"}, "rollback": None, "routes": {"shadow": None}}
    before = besides("time.sleep(3)")
    service = start(workers=1, activation_seconds=0.5, before=before)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(activate, service, three, "v2")
        until(lambda: len(children(service.process.pid)) == 2)

        def ask_too(_: int) -> tuple[httpx2.Response, float]:
            begun = time.monotonic()
            return admin(service, three, call, bodies[call] or {}), time.monotonic() - begun

        answers = list(pool.map(ask_too, range(4)))
        assert first.result().status_code == 200
    assert {answer.status_code for answer, _ in answers} == {503}
    assert max(took for _, took in answers) < 1.0
    assert answers[0][0].headers["Retry-After"] == "1"
    assert "did not start within 0.5 seconds" in answers[0][0].json()["error"]["message"]


@pytest.mark.nightly
@pytest.mark.fault(66)
def test_activations_do_not_queue_behind_one_that_waits_for_a_stopped_worker(
    start: Start, three: Path
) -> None:
    """Each waits for the others to follow, but not the next for that."""
    service = start(workers=2, activation_seconds=2)
    pid = children(service.process.pid)[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(4) as pool:
            begun = time.monotonic()
            asked = ["v2", "v3", "v2", "v3"]
            answers = list(pool.map(lambda version: activate(service, three, version), asked))
            took = time.monotonic() - begun
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [answer.json()["behind"] for answer in answers] == [[pid]] * 4
    assert took < 4.5
