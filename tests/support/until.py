"""Waiting for another process or thread: the one place where a test waits."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

# Far longer than anything takes on a busy machine: a test fails by it only when the condition never comes.
PATIENCE = 60.0
Seen = TypeVar("Seen")


def until(condition: Callable[[], Seen], what: str) -> Seen:
    """Ask until `condition()` is true, and give what it gave; fail with `what` when it never is."""
    end = time.monotonic() + PATIENCE
    while not (seen := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)
    return seen


async def eventually(condition: Callable[[], Seen], what: str) -> Seen:
    """As `until`, in an event loop, by the clock of that."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while not (seen := condition()):
        assert loop.time() < end, f"never: {what}"
        await asyncio.sleep(0.01)
    return seen
