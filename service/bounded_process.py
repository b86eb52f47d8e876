"""Work in a process that is killed after its time, or with its caller, and comes behind requests."""

import asyncio
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress


class ProcessFailedError(Exception):
    """A process had no output; the message says when or how it ended, such as `by SIGKILL`."""


async def output_of(
    module: str,
    text: bytes,
    seconds: float,
    niceness: int,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run `main` of a module with `text` on standard input, and return its standard output.

    The environment goes along, with the changes of `environment`, and no descriptor. The process is killed
    after `seconds`, and when this call is cancelled. Its `main` begins with `begin`, and has `arguments` from
    `sys.argv[2]` on. Raises TimeoutError after `seconds`, and ProcessFailedError for a process that can't be
    started, crashes or is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # without the current folder, where others may be able to write
            "-c",
            # Requests come first, also while the process imports its libraries.
            f"import os; os.nice({niceness}); from {module} import main; main()",
            str(os.getpid()),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
    except OSError as error:
        raise ProcessFailedError(f"before its start ({error.strerror})") from None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(text)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ProcessFailedError(describe_exit(process.returncode))
    return output


def begin() -> bytes:
    """Bind this process to its caller, the pid in its argument, and read the text on standard input."""
    for number in (signal.SIGINT, signal.SIGTERM):  # from a terminal; the caller ends this process
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(int(sys.argv[1]))
    return sys.stdin.buffer.read()


def limit(resource_limit: int, value: float) -> None:
    """Lower a limit of this process to `value`, or to the hard limit."""
    _, hard = resource.getrlimit(resource_limit)
    soft = int(min(value, 1 << 60))
    resource.setrlimit(resource_limit, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


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
