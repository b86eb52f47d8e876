"""The gate in a process of its own, with limited time, processor and memory: its caller, and its program.

A version may make a library hang, crash or take all memory: that ends this process, and no worker.
"""

import asyncio
import math
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from turret.service.bounded_process import ProcessFailedError, begin, limit, output_of
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
# Beside six busy processes on two cores a check takes 23 s so, 63 s at 10, and 400 s at 19, past the limit,
# when somebody has to go back a version.
_NICENESS = 5


async def run_gate_in_process(request: GateRequest, seconds: float) -> GateReport:
    """Check a version in a process that is killed after `seconds`, or when this call is cancelled.

    The environment goes along, with the address of the engine. A process that can't be started, crashes or is
    killed is a failed check, `crashed`.
    """
    try:
        version_folder(request.root, request.version)
    except BundleError:  # the first check, which opens nothing, will refuse it
        return await asyncio.to_thread(run_gate, request)
    text = request.model_dump_json().encode()
    try:
        report = await output_of(__name__, text, seconds, _NICENESS, [str(seconds)], inherited_access())
    except TimeoutError:
        return crashed(request, f"after {seconds:g} seconds, the limit (TURRET_GATE_SECONDS)")
    except ProcessFailedError as error:
        return crashed(request, str(error))
    try:
        return GateReport.model_validate_json(report)
    except ValidationError:
        return crashed(request, "without an outcome")


def main() -> None:
    """Check the version that standard input names, and write the report to standard output.

    The arguments are the pid of the caller, and the limit in seconds.
    """
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no outcome
    request = GateRequest.model_validate_json(begin())
    few_arenas()
    _limit(request, float(sys.argv[2]))
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
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, math.ceil(seconds) * threads)
    with suppress(OSError):  # the kernel's first choice when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if (used := data_bytes()) is None:
        return
    size = 0
    with suppress(BundleError, MemoryError):  # the gate reports it
        size = sum(file.bytes for file in read_manifest(request.root / request.version).files.values())
    base = used + _BASE_BYTES + threads * _THREAD_BYTES
    limit(resource.RLIMIT_DATA, base + MEMORY_FACTOR * size)
