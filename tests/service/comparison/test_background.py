import asyncio
import os
import sys
import threading

import pytest

from turret.service.comparison.background import BackgroundThread
from turret.service.errors import NotReadyError


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_the_thread_has_a_lower_priority_than_the_others() -> None:
    async def priorities() -> tuple[int, int]:
        thread = BackgroundThread("test")
        found = await thread.run(_priority)
        await thread.close()
        return found, _priority()

    background, here = asyncio.run(priorities())
    assert background > here or here >= 10


def test_calls_run_one_after_another() -> None:
    running: list[int] = []

    def call(number: int) -> int:
        running.append(number)
        assert len(running) == 1
        running.remove(number)
        return number

    async def all_of_them() -> list[int]:
        thread = BackgroundThread("test")
        found = await asyncio.gather(*(thread.run(call, number) for number in range(20)))
        await thread.close()
        return found

    assert asyncio.run(all_of_them()) == list(range(20))


def test_a_long_call_ends_when_the_service_stops() -> None:
    async def stop() -> None:
        thread, has_begun = BackgroundThread("test"), threading.Event()

        def for_ever() -> None:
            while True:
                has_begun.set()
                thread.rest()

        running = asyncio.ensure_future(thread.run(for_ever))
        await asyncio.to_thread(has_begun.wait)
        await thread.close()
        with pytest.raises(NotReadyError, match="another instance"):
            await running

    asyncio.run(asyncio.wait_for(stop(), 10))
