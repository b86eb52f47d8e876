"""Checks as the supervisor makes them, with something else in the place of the gate."""

import json
import os
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turret.service.models.gate import GateReport, GateRequest, Passage
from turret.service.models.memory import data_bytes
from turret.service.process import checking
from turret.service.process.checking import Check, Checks

Run = Callable[..., str]
LIMITS = ("RLIMIT_DATA", "RLIMIT_CPU", "RLIMIT_CORE")


@pytest.fixture
def checks() -> Iterator[Checks]:
    with selectors.DefaultSelector() as selector:
        made = Checks(5.0, selector)
        yield made
        made.kill_all()
        finish(made)


def finish(checks: Checks, seconds: float = 10.0) -> None:
    """Do what the supervisor does until no check is left."""
    end = time.monotonic() + seconds
    while checks._running:
        assert time.monotonic() < end
        for key, _ in checks.selector.select(0.01):
            assert isinstance(key.data, Check)
            checks.kill(key.data, "as its worker no longer waits")
        checks.kill_overdue()
        for pid in list(checks._running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                assert checks.reap(pid, os.waitstatus_to_exitcode(status))


def request(root: Path = Path("/nowhere"), version: str = "v1", force: bool = False) -> GateRequest:
    return GateRequest(root=root, version=version, force=force)


def begin(checks: Checks, asked: GateRequest, worker: int = 0) -> socket.socket:
    """Ask for a check; gives the end on which its outcome comes."""
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    checks.begin(worker, asked, theirs)
    return ours


def outcome(answer: socket.socket) -> bytes:
    content = b""
    with answer:
        while chunk := answer.recv(65536):
            content += chunk
    return content


def passing(asked: GateRequest) -> Passage:
    report = GateReport(version=asked.version, time="now", forced=asked.force, checks=())
    return Passage(report=report)


def test_the_outcome_arrives_on_the_socket_of_its_request(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers ask for one version, one by force: each gets its own."""
    monkeypatch.setattr(checking, "pass_gate", passing)
    answers = [begin(checks, request(force=bool(number)), number) for number in range(2)]
    finish(checks)
    found = [Passage.model_validate_json(outcome(one)) for one in answers]
    assert [one.report.forced for one in found] == [False, True]


@pytest.mark.nightly
def test_a_check_beyond_its_time_is_killed(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "pass_gate", lambda _: time.sleep(60))
    checks.seconds = 0.2
    answer = begin(checks, request())
    begun = time.monotonic()
    finish(checks)
    assert time.monotonic() - begun < 2
    assert json.loads(outcome(answer))["crashed"].startswith("after 0.2 seconds")


def test_a_worker_has_one_check_at_a_time(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "pass_gate", lambda _: time.sleep(60))
    first, other = begin(checks, request(), 0), begin(checks, request(), 1)
    second = begin(checks, request(), 0)
    time.sleep(0.1)
    for pid in [pid for pid, check in checks._running.items() if check.reason]:
        os.waitpid(pid, 0)
        checks.reap(pid, -9)
    assert len(checks._running) == 2
    assert "requested another check" in json.loads(outcome(first))["crashed"]
    other.close()
    second.close()
    finish(checks)


@pytest.mark.nightly
def test_a_check_whose_worker_closed_its_socket_is_killed(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "pass_gate", lambda _: time.sleep(60))
    begin(checks, request()).close()
    begun = time.monotonic()
    finish(checks)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (lambda _: os.abort(), "by SIGABRT"),
        (lambda _: os._exit(7), "with status 7"),
        (lambda _: [][0], "with IndexError: list index out of range"),
        (lambda _: bytearray(8 << 30), "with MemoryError"),
    ],
)
def test_the_exit_of_a_check_is_reported(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, gate: Callable[[GateRequest], object], words: str
) -> None:
    monkeypatch.setattr(checking, "pass_gate", gate)
    answer = begin(checks, request())
    finish(checks)
    assert json.loads(outcome(answer))["crashed"].startswith(words)


def test_a_failed_fork_is_reported(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(checking, "fork", refuse)
    answer = begin(checks, request())
    assert "Resource temporarily unavailable" in json.loads(outcome(answer))["crashed"]


def test_its_limits_are_of_its_time_and_the_size_of_the_version(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, bundles: Path
) -> None:
    def tell(_: GateRequest) -> Passage:
        found = {name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS}
        raise ValueError(json.dumps(found | {"descriptors": len(os.listdir("/dev/fd"))}))

    monkeypatch.setattr(checking, "pass_gate", tell)
    answer = begin(checks, request(bundles))
    finish(checks)
    told = json.loads(json.loads(outcome(answer))["crashed"].removeprefix("with ValueError: "))
    cores, inherited = os.cpu_count() or 1, data_bytes() or 0
    assert told["RLIMIT_CPU"] == 5 * cores
    assert told["RLIMIT_CORE"] == 0
    assert 250e6 < told["RLIMIT_DATA"] - inherited < 300e6 + cores * 20e6
    assert told["descriptors"] == 5  # the standard ones, its own socket, and the folder that is listed
