"""What a process has to be before it forks, and what becomes of those that were forked."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from service.errors import ServiceError


def check_threads() -> None:
    """Raise ServiceError when this process has threads: forking it could leave locks held for ever."""
    tasks = Path("/proc/self/task")
    names = sorted(path.name for path in tasks.iterdir()) if tasks.is_dir() else []
    if len(names) > 1:
        raise ServiceError(
            f"{len(names)} threads run before the workers are forked; start the service with `turret serve`"
        )


def how(code: int) -> str:
    """Say how a process ended."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends, however that does (Linux)."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
