"""Clocks that no machine slows down: one that a test moves by hand, and that of an event loop."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from tests.support.until import PATIENCE

Given = TypeVarTuple("Given")
Result = TypeVar("Result")


class Clock:
    """Tells `now`, in seconds; for classes that take a clock."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """As `asyncio.run`, without waiting for time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at time 0: timers fire at once, in the order of their times.

    Time stands while the loop waits for a thread, so that no limit passes because a machine is busy.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.threads = 0  # that are waited for
        super().__init__(_Selector(self))

    def time(self) -> float:
        """The seconds that have passed for this loop."""
        return self.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Given], Result], *args: *Given
    ) -> asyncio.Future[Result]:
        """Run `func` in a thread; no time passes until its result is there."""
        self.threads += 1
        running = super().run_in_executor(executor, func, *args)
        running.add_done_callback(self._joined)
        return running

    def _joined(self, _: object) -> None:
        self.threads -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if that is nothing, let `timeout` pass instead of waiting for it."""
        found = super().select(0)
        if found or timeout == 0:
            return found
        if timeout is None or self._loop.threads:
            found = super().select(PATIENCE)
            assert found, "never: the thread that the event loop waits for"
        else:
            self._loop.now += timeout
        return found
