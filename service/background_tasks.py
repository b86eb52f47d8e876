"""Background tasks of a worker: one that fails is logged and started again, and the others go on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

# Before a task is started again: doubled with each failure, until one of its runs has lasted longer.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
_log = logging.getLogger("turret.background")


class BackgroundTasks:
    """The tasks of an event loop that run until `close`, or until they return.

    `down` are the names of those that failed and have not been started again yet.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._down: set[str] = set()

    @property
    def down(self) -> tuple[str, ...]:
        """The names of the tasks that have failed and wait to be started again."""
        return tuple(sorted(self._down))

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task; `work` is called again after each failure."""
        self._tasks.append(asyncio.create_task(self._run(name, work), name=name))

    async def close(self) -> None:
        """Cancel all tasks and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        loop, task, pause = asyncio.get_running_loop(), asyncio.current_task(), FIRST_PAUSE
        while True:
            began = loop.time()
            try:
                await work()
                return
            except (Exception, asyncio.CancelledError):
                if task is not None and task.cancelling():
                    raise
                if loop.time() - began > pause:
                    pause = FIRST_PAUSE
                _log.exception("background task %s failed; starting it again in %g seconds", name, pause)
            self._down.add(name)
            await asyncio.sleep(pause)
            self._down.remove(name)
            pause = min(2 * pause, LONGEST_PAUSE)
