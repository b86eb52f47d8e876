import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event
from turret.service.stores.sqlite.grouping import GroupCommit, WriteResult

EVENT = Event("e", "u", 1, 0)


def group(write: "Recorder") -> GroupCommit:
    return GroupCommit(ThreadPoolExecutor(1), write)


class Recorder:
    """Writes nothing, and remembers the sizes of groups; an event "bad" is refused."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, calls: Sequence[Sequence[Event]]) -> list[WriteResult]:
        self.sizes.append(len(calls))
        return [ValueError("bad") if events[0].event_id == "bad" else len(events) for events in calls]


def test_calls_that_come_at_once_are_one_group() -> None:
    write = Recorder()

    async def work() -> list[int]:
        grouping = group(write)
        return await asyncio.gather(*(grouping.append([EVENT] * (n + 1)) for n in range(5)))

    assert asyncio.run(work()) == [1, 2, 3, 4, 5]
    assert write.sizes == [5]


def test_a_lone_call_does_not_wait_for_others() -> None:
    write = Recorder()

    async def work() -> None:
        grouping = group(write)
        for _ in range(3):
            assert await asyncio.wait_for(grouping.append([EVENT]), 10) == 1

    asyncio.run(work())
    assert write.sizes == [1, 1, 1]


def test_who_fails_fails_alone() -> None:
    async def work() -> list[int | BaseException]:
        grouping = group(Recorder())
        calls = [[EVENT], [EVENT._replace(event_id="bad")], [EVENT]]
        return await asyncio.gather(*map(grouping.append, calls), return_exceptions=True)

    first, second, third = asyncio.run(work())
    assert (first, str(second), third) == (1, "bad", 1)


def test_groups_have_a_size() -> None:
    """In events, though a call is never split."""
    write = Recorder()

    async def work() -> list[int]:
        grouping = group(write)
        return await asyncio.gather(*(grouping.append([EVENT] * 2_000) for _ in range(5)))

    assert asyncio.run(work()) == [2_000] * 5
    assert write.sizes == [3, 2]


class Held(Recorder):
    """Writes when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, calls: Sequence[Sequence[Event]]) -> list[WriteResult]:
        self.begun.set()
        assert self.go.wait(10)
        return super().__call__(calls)


async def cancelled(call: "asyncio.Task[int]") -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_calls_that_arrive_during_a_write_are_the_next_group() -> None:
    """Without a further call; those that are cancelled before it are left out."""
    write = Held()

    async def work() -> list[int]:
        grouping = group(write)
        first = asyncio.create_task(grouping.append([EVENT]))
        await asyncio.to_thread(write.begun.wait, 10)
        left, *waiting = [asyncio.create_task(grouping.append([EVENT] * (n + 1))) for n in range(3)]
        await asyncio.sleep(0)
        await cancelled(left)
        write.go.set()
        return await asyncio.wait_for(asyncio.gather(first, *waiting), 10)

    assert asyncio.run(work()) == [1, 2, 3]
    assert write.sizes == [1, 2]


def test_a_call_that_is_cancelled_during_its_write_leaves_the_others() -> None:
    write = Held()

    async def work() -> int:
        grouping = group(write)
        left, kept = [asyncio.create_task(grouping.append([EVENT])) for _ in range(2)]
        await asyncio.to_thread(write.begun.wait, 10)
        await cancelled(left)
        write.go.set()
        assert await asyncio.wait_for(kept, 10) == 1
        return await asyncio.wait_for(grouping.append([EVENT] * 2), 10)

    assert asyncio.run(work()) == 2
    assert write.sizes == [2, 1]


def test_nobody_waits_for_ever_when_the_writing_ends() -> None:
    """As where a thread can't be had any more, while a service ends."""

    async def work() -> None:
        executor = ThreadPoolExecutor(1)
        grouping = GroupCommit(executor, Recorder())
        executor.shutdown()
        for _ in range(2):
            with pytest.raises(HistoryUnavailableError, match="history store closed"):
                await asyncio.wait_for(grouping.append([EVENT]), 5)

    asyncio.run(work())
