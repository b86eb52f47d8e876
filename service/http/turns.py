"""Callbacks that leave room for other requests in each turn of the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

A_TURN = 32  # callbacks; each costs some tenths of a millisecond


class Turns:
    """Runs callbacks in their order, a few in each turn of the event loop.

    Thousands of connections may end at once: a client leaves them, or their deadlines come together. To end
    all of them in one turn would hold every other request for a second.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call `callback` with these arguments soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(partial(callback, *arguments))

    async def wait(self) -> None:
        """Wait for a turn."""
        turn = asyncio.get_running_loop().create_future()
        self.call(_end, turn)
        await turn

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(A_TURN, len(self._waiting))):
            loop.call_soon(self._waiting.popleft())
        if self._waiting:
            loop.call_soon(self._next)


def _end(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else its request was cancelled
        turn.set_result(None)
