"""The process that counts outcomes, with limited time and memory and a low priority."""

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress

from turret.service.errors import ServiceError
from turret.service.outcomes.request import CountRequest
from turret.service.versions.gate_process import describe_exit, end_with_parent
from turret.service.versions.memory import data_bytes

_MOST_BYTES = 2_000_000_000  # beyond the libraries of the process
# Requests come first, also while the process imports its libraries.
_PROGRAM = f"import os; os.nice(10); from {__name__} import main; main()"


async def count_in_process(request: CountRequest, seconds: float) -> None:
    """Count in a process that is killed after `seconds`, or when this call is cancelled.

    Raises ServiceError for a process that can't be started, crashes or is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without the current folder, where others may be able to write
            "-c",
            _PROGRAM,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError as error:
        raise ServiceError(f"the outcomes can't be counted: no process starts ({error.strerror})") from None
    try:
        async with asyncio.timeout(seconds):
            await process.communicate(request.model_dump_json().encode())
    except TimeoutError:
        raise ServiceError(
            f"counting the outcomes takes longer than {seconds:g} seconds; use turret outcomes"
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ServiceError(
            f"the process that counts the outcomes ended {describe_exit(process.returncode)}; its memory is "
            "limited: use turret outcomes"
        )


def main() -> None:
    """Count for the request on standard input; the argument is the pid of the caller."""
    for number in (signal.SIGINT, signal.SIGTERM):  # from a terminal; the caller ends this process
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(int(sys.argv[1]))
    from turret.service.outcomes.counting import count_once

    request = CountRequest.model_validate_json(sys.stdin.buffer.read())
    if (used := data_bytes()) is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = used + _MOST_BYTES
        resource.setrlimit(
            resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )
    count_once(request)
