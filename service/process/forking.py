"""Forking: checks before it, and the pauses between attempts."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from turret.service.child_processes import end_with_parent
from turret.service.errors import ServiceError

FIRST_PAUSE, _MAX_PAUSE = 0.05, 5.0


def check_threads() -> None:
    """Raise ServiceError when this process has threads: a forked child could inherit locked locks."""
    tasks = Path("/proc/self/task")
    names = sorted(path.name for path in tasks.iterdir()) if tasks.is_dir() else []
    if len(names) > 1:
        raise ServiceError(
            f"{len(names)} threads run before the fork of the workers; start the service with `turret serve`"
        )


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child process, which ends with it or with this process, and return its pid.

    An exception in `work` ends the child with status 1. Raises OSError when the fork fails.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        end_with_parent(parent)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # skip the parent's frames


def pause_after(failures: int) -> float:
    """Seconds to wait before a restart after so many failures in a row (exponential backoff)."""
    return min(_MAX_PAUSE, FIRST_PAUSE * 2.0 ** (failures - 1)) if failures else 0.0
