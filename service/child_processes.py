"""What all child processes have in common: they end with their parent, and their ends are described."""

import ctypes
import os
import signal
import sys


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
