"""The priority of a thread whose work may wait."""

import os
import threading
from contextlib import suppress

_NICENESS = 10


def lower_priority() -> None:
    """Let requests come before the work of this thread, where the system has priorities of threads."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # Linux: of this thread alone
