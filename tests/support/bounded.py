"""An end for a test whose code may never return: far more processor time than it takes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SECONDS = 20


@contextmanager
def ending() -> Iterator[None]:
    """Fail after `SECONDS` of processor time of the process in here; only the main thread is interrupted."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise AssertionError(f"this is not over after {SECONDS} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
