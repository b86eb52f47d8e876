"""Gate processes, which check versions: forked by the supervisor, with limited time, processor and memory."""

import contextlib
import json
import logging
import math
import os
import resource
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from turret.service.process.forking import close_all_but, describe_exit, fork
from turret.service.thresholds import MEMORY_FACTOR
from turret.service.versions.gate import GateRequest, pass_gate
from turret.service.versions.memory import data_bytes
from turret.tower.errors import BundleError
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import check_version

# Beyond inherited memory and the files; a check of 100,000 items took 35 MB.
_BASE_BYTES, _THREAD_BYTES = 256_000_000, 16_000_000
_log = logging.getLogger("turret.supervisor")


@dataclass(eq=False)
class Check:
    """A gate process, the worker that requested it, and the socket on which that worker waits."""

    worker: int
    pid: int
    answer: socket.socket
    ends: float
    reason: str = ""


@dataclass
class Checks:
    """At most one check per worker, each limited to `seconds`.

    A request brings a socket, to which the check writes its outcome and which is closed when the check ends,
    so that outcomes can't be confused. A check whose worker has closed its end, or has died, is killed;
    `selector` reports that.
    """

    seconds: float
    selector: selectors.BaseSelector
    clock: Callable[[], float] = time.monotonic
    _running: dict[int, Check] = field(default_factory=dict)

    def begin(self, worker: int, request: GateRequest, answer: socket.socket) -> None:
        """Check a version in a child process and write the outcome to `answer`."""
        for check in list(self._running.values()):
            if check.worker == worker:
                self.kill(check, "as its worker has requested another check")
        try:
            pid = fork(lambda: _check(request, self.seconds, answer))
        except OSError as error:
            _log.error("the check of version %s can't start: %s", request.version, error.strerror)
            _report(answer, f"before it began: {error.strerror}")
            answer.close()
            return
        check = Check(worker, pid, answer, self.clock() + self.seconds)
        self._running[pid] = check
        with contextlib.suppress(OSError):  # then only its deadline ends it
            self.selector.register(answer, selectors.EVENT_READ, check)

    def kill(self, check: Check, reason: str) -> None:
        """Kill a check for a reason."""
        check.reason = check.reason or reason
        with contextlib.suppress(KeyError):  # killed before, not yet reaped
            self.selector.unregister(check.answer)
        os.kill(check.pid, signal.SIGKILL)

    def kill_overdue(self) -> None:
        """Kill the checks that have used up their time."""
        for check in self._running.values():
            if self.clock() >= check.ends and not check.reason:
                self.kill(check, f"after {self.seconds:g} seconds, the limit (TURRET_GATE_SECONDS)")

    def reap(self, pid: int, code: int) -> bool:
        """Report the exit of a check's process to its worker; False if the pid is no check's."""
        check = self._running.pop(pid, None)
        if check is None:
            return False
        with contextlib.suppress(KeyError):
            self.selector.unregister(check.answer)
        if code:
            _report(check.answer, check.reason or describe_exit(code))
        check.answer.close()
        return True

    def kill_all(self) -> None:
        """Kill all checks."""
        for check in self._running.values():
            self.kill(check, "as the service stops")

    def close_inherited(self) -> None:
        """Close the sockets of the checks in a child process; open, they would keep the workers waiting."""
        for check in self._running.values():
            check.answer.close()


def _report(answer: socket.socket, reason: str) -> None:
    with contextlib.suppress(OSError):  # the worker may be gone or not reading
        answer.send(b"\n" + json.dumps({"crashed": reason[:1000]}).encode(), socket.MSG_DONTWAIT)


def _check(request: GateRequest, seconds: float, answer: socket.socket) -> None:
    """Run a check in the child process, which keeps only the socket for its outcome."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):  # from a terminal; the supervisor ends this process
        signal.signal(number, signal.SIG_IGN)
    close_all_but(answer.fileno())
    os.nice(19)  # requests come first
    _limit(request, seconds)
    try:
        outcome = pass_gate(request).model_dump_json()
    except Exception as error:  # a version may make a library raise anything
        outcome = json.dumps({"crashed": f"with {type(error).__name__}: {str(error)[:500]}"})
    answer.sendall(outcome.encode())


def _limit(request: GateRequest, seconds: float) -> None:
    """Limit the processor time and memory of this process; mapped files don't count as memory."""
    threads = os.cpu_count() or 1
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_CPU, math.ceil(seconds) * threads)
    with contextlib.suppress(OSError):  # the kernel's first choice when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    inherited = data_bytes()
    if inherited is None:
        return
    base = inherited + _BASE_BYTES + threads * _THREAD_BYTES
    _set(resource.RLIMIT_DATA, base)
    try:
        check_version(request.version)
        files = read_manifest(request.root / request.version).files.values()
    except (BundleError, MemoryError):  # the gate reports it
        return
    factor = max(request.memory_factor, MEMORY_FACTOR)
    _set(resource.RLIMIT_DATA, base + factor * sum(file.bytes for file in files))


def _set(limit: int, value: float) -> None:
    _, hard = resource.getrlimit(limit)
    soft = int(min(value, 1 << 60))
    resource.setrlimit(limit, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
