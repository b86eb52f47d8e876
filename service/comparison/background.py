"""One thread of low priority, for work that must not delay requests."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from turret.service.errors import NotReadyError
from turret.service.thread_priority import lower_priority

_REST_SECONDS = 0.001
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class BackgroundThread:
    """Runs calls one after another. The thread begins with the first call, so after any fork."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name, initializer=lower_priority)
        self._is_closing = False

    async def run(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Await the result of a call in the thread. It goes on if this is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))

    async def close(self) -> None:
        """End the running call at its next rest."""
        self._is_closing = True
        await asyncio.to_thread(self._executor.shutdown)

    def rest(self) -> None:
        """Let other threads have the interpreter, between the parts of a long call.

        Raises NotReadyError once the service stops.
        """
        if self._is_closing:
            raise NotReadyError("service", None, "the service stops; send the request to another instance", 2)
        time.sleep(_REST_SECONDS)
