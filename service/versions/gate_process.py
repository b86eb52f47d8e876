"""The gate in a process of its own, with limited time, processor and memory: its caller, and its program.

A version may make a library hang, crash or take all memory: that ends this process, and no worker.
"""

import asyncio
import math
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from turret.service.child_processes import describe_exit, end_with_parent
from turret.service.thresholds import MEMORY_FACTOR
from turret.service.versions.gate import GateRequest, Passage, crashed, pass_gate
from turret.service.versions.memory import data_bytes, few_arenas
from turret.tower.engines.access import Access, current_access, set_access
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import read_manifest
from turret.tower.format.pointer import check_version

_OUTCOME_BYTES = 1_000_000
_END_SECONDS = 2.0  # in which a killed process ends, unless a disk holds it
# Beyond the interpreter's memory and the files; a check of 100,000 items took 35 MB.
_BASE_BYTES, _THREAD_BYTES = 256_000_000, 16_000_000


class _Call(BaseModel):
    """A request, and what else the process needs: its time, its access to engines, the pid of its caller."""

    model_config = ConfigDict(frozen=True)

    request: GateRequest
    seconds: float
    access: Access
    parent: int


class _Outcome(BaseModel):
    """The passage, or the words for an unexpected error."""

    passage: Passage | None = None
    crashed: str = "without an outcome"


async def pass_gate_in_process(request: GateRequest, seconds: float) -> Passage:
    """Check a version in a process that is killed after `seconds`, or when this call is cancelled.

    The environment goes along, and no descriptor. A process that can't be started, crashes or is killed is a
    failed check, `crashed`.
    """
    try:
        version_folder(request.root, request.version)
    except BundleError:  # the first check, which opens nothing, will refuse it
        return await asyncio.to_thread(pass_gate, request)
    call = _Call(request=request, seconds=seconds, access=current_access(), parent=os.getpid())
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without the current folder, where authors of models may be able to write
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError as error:
        return crashed(request, f"before its start ({error.strerror})")
    try:
        async with asyncio.timeout(seconds):
            return await _outcome(process, call)
    except TimeoutError:
        return crashed(request, f"after {seconds:g} seconds, the limit (TURRET_GATE_SECONDS)")
    finally:
        with suppress(ProcessLookupError, TimeoutError):
            if process.returncode is None:
                process.kill()
                async with asyncio.timeout(_END_SECONDS):
                    await process.wait()


async def _outcome(process: asyncio.subprocess.Process, call: _Call) -> Passage:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):  # it has ended: its status tells how
        process.stdin.write(call.model_dump_json().encode())
        await process.stdin.drain()
    process.stdin.close()
    content = b""
    while chunk := await process.stdout.read(65536):
        content = (content + chunk)[:_OUTCOME_BYTES]  # one that is cut is no outcome
    if code := await process.wait():
        return crashed(call.request, describe_exit(code))
    try:
        outcome = _Outcome.model_validate_json(content)
    except ValidationError:
        outcome = _Outcome()
    return outcome.passage or crashed(call.request, outcome.crashed)


def main() -> None:
    """Check the version that standard input names, and write the outcome to standard output."""
    for number in (signal.SIGINT, signal.SIGTERM):  # from a terminal; the caller ends this process
        signal.signal(number, signal.SIG_IGN)
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no outcome
    call = _Call.model_validate_json(sys.stdin.buffer.read())
    end_with_parent(call.parent)
    os.nice(19)  # requests come first
    few_arenas()
    set_access(call.access)
    _limit(call.request, call.seconds)
    try:
        outcome = _Outcome(passage=pass_gate(call.request))
    except Exception as error:  # a version may make a library raise anything
        outcome = _Outcome(crashed=f"with {type(error).__name__}: {str(error)[:500]}")
    with open(answer, "wb") as written:
        written.write(outcome.model_dump_json().encode())
    os._exit(0)  # a library that fails at the end of the interpreter changes nothing any more


def _limit(request: GateRequest, seconds: float) -> None:
    """Limit the processor time and memory of this process; mapped files don't count as memory."""
    threads = os.cpu_count() or 1
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_CPU, math.ceil(seconds) * threads)
    with suppress(OSError):  # the kernel's first choice when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    used = data_bytes()
    if used is None:
        return
    base = used + _BASE_BYTES + threads * _THREAD_BYTES
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


if __name__ == "__main__":
    main()
