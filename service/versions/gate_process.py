"""The gate in a process of its own, with limited time, processor and memory: its caller, and its program.

A version may make a library hang, crash or take all memory: that ends this process, and no worker.
"""

import asyncio
import ctypes
import math
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from turret.service.versions.gate import crashed, run_gate
from turret.service.versions.gate_report import GateReport, GateRequest
from turret.service.versions.memory import data_bytes, few_arenas
from turret.tower.config import MEMORY_FACTOR
from turret.tower.engines.access import inherited_access
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import read_manifest

# Beyond the interpreter's memory and the files; a check of 100,000 items took 35 MB.
_BASE_BYTES, _THREAD_BYTES = 256_000_000, 16_000_000
# Requests come first, also while the process imports its libraries. Beside six busy processes on two cores a
# check takes 23 s so, 63 s at 10, and 400 s at 19, past the limit, when somebody has to go back a version.
_PROGRAM = f"import os; os.nice(5); from {__name__} import main; main()"


async def run_gate_in_process(request: GateRequest, seconds: float) -> GateReport:
    """Check a version in a process that is killed after `seconds`, or when this call is cancelled.

    The environment goes along, with the address of the engine, and no descriptor. A process that can't be
    started, crashes or is killed is a failed check, `crashed`.
    """
    try:
        version_folder(request.root, request.version)
    except BundleError:  # the first check, which opens nothing, will refuse it
        return await asyncio.to_thread(run_gate, request)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without the current folder, where authors of models may be able to write
            "-c",
            _PROGRAM,
            str(seconds),
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **inherited_access(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError as error:
        return crashed(request, f"before its start ({error.strerror})")
    try:
        async with asyncio.timeout(seconds):
            report, _ = await process.communicate(request.model_dump_json().encode())
    except TimeoutError:
        return crashed(request, f"after {seconds:g} seconds, the limit (TURRET_GATE_SECONDS)")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        return crashed(request, describe_exit(process.returncode))
    try:
        return GateReport.model_validate_json(report)
    except ValidationError:
        return crashed(request, "without an outcome")


def main() -> None:
    """Check the version that standard input names, and write the report to standard output.

    The arguments are the limit in seconds, and the pid of the caller.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # from a terminal; the caller ends this process
        signal.signal(number, signal.SIG_IGN)
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no outcome
    seconds, parent = sys.argv[1:]
    end_with_parent(int(parent))
    request = GateRequest.model_validate_json(sys.stdin.buffer.read())
    few_arenas()
    _limit(request, float(seconds))
    try:
        report = run_gate(request)
    except Exception as error:  # a version may make a library raise anything
        report = crashed(request, f"with {type(error).__name__}: {str(error)[:500]}")
    with open(answer, "wb") as written:
        written.write(report.model_dump_json().encode())
    os._exit(0)  # a library that fails at the end of the interpreter changes nothing any more


def _limit(request: GateRequest, seconds: float) -> None:
    """Limit the processor time and memory of this process; mapped files don't count as memory."""
    threads = os.cpu_count() or 1
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_CPU, math.ceil(seconds) * threads)
    with suppress(OSError):  # the kernel's first choice when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if (used := data_bytes()) is None:
        return
    size = 0
    with suppress(BundleError, MemoryError):  # the gate reports it
        size = sum(file.bytes for file in read_manifest(request.root / request.version).files.values())
    base = used + _BASE_BYTES + threads * _THREAD_BYTES
    _set(resource.RLIMIT_DATA, base + MEMORY_FACTOR * size)


def _set(limit: int, value: float) -> None:
    _, hard = resource.getrlimit(limit)
    soft = int(min(value, 1 << 60))
    resource.setrlimit(limit, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux only).

    `parent` is the parent's pid from before the start, as it may already have ended.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


def describe_exit(code: int) -> str:
    """Describe an exit code: `with status 3`, `by SIGKILL`."""
    if code >= 0:
        return f"with status {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"by signal {-code}"
