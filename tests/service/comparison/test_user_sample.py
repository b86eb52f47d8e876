import asyncio
from collections.abc import AsyncIterator

from turret.service.comparison import user_sample
from turret.service.comparison.background import BackgroundThread
from turret.service.comparison.user_sample import UserSample, sample_users
from turret.service.errors import HistoryUnavailableError
from turret.service.schemas.fields import HISTORY_LIMIT
from turret.service.stores.contract import Event, History
from turret.service.stores.memory import MemoryHistory


def event(user: int, item: int, time: int = 0) -> Event:
    return Event(f"{user}-{item}", str(user), item, time)


def sampled(store: object, size: int, seconds: float = 5.0) -> list[History]:
    async def sample() -> list[History]:
        thread = BackgroundThread("test")
        histories = await sample_users(store, size, thread, seconds)  # type: ignore[arg-type]
        await thread.close()
        return histories

    return asyncio.run(sample())


def test_a_user_whose_events_are_in_two_portions_is_one() -> None:
    sample = UserSample(5)
    sample.add([event(1, 10, 1), event(2, 20, 2)])
    sample.add([event(2, 21, 3), event(3, 30, 4)])
    assert sample.histories() == [History((10,), (1,)), History((20, 21), (2, 3)), History((30,), (4,))]


def test_of_a_long_history_the_newest_items_count() -> None:
    sample = UserSample(1)
    sample.add(event(1, item) for item in range(HISTORY_LIMIT + 5))
    (history,) = sample.histories()
    assert (history.items[0], history.items[-1]) == (5, HISTORY_LIMIT + 4)


def test_every_user_is_as_likely_as_any_other() -> None:
    """Not only the first ones, who often are the oldest."""
    sample = UserSample(1000)
    sample.add(event(user, user) for user in range(10_000))
    users = [history.items[0] for history in sample.histories()]
    assert len(set(users)) == 1000
    assert 4500 < sum(map(int, users)) / 1000 < 5500  # the mean's deviation is 91


def test_the_users_of_a_store_are_sampled() -> None:
    store = MemoryHistory()
    asyncio.run(store.append([event(user, item, item) for user in range(9) for item in (1, 2)]))
    assert sampled(store, 4) == [History((1, 2), (1, 2))] * 4
    assert sampled(MemoryHistory(), 4) == []


class Endless:
    """A store that never ends, or fails, or hangs."""

    def __init__(self, then: str = "") -> None:
        self.then = then
        self.portions = 0

    async def scan(self, first: int, last: int) -> AsyncIterator[list[Event]]:
        while True:
            self.portions += 1
            yield [event(self.portions, item) for item in range(1000)]
            if self.then == "hang":
                await asyncio.sleep(3600)
            if self.then == "fail":
                raise HistoryUnavailableError("the disk is gone")


def test_a_scan_is_bounded_in_events_and_in_time() -> None:
    store = Endless()
    assert len(sampled(store, 3)) == 3
    assert store.portions == user_sample._EVENTS // 1000
    assert len(sampled(Endless("hang"), 3, 0.05)) == 1


def test_a_store_that_fails_leaves_what_was_read() -> None:
    assert len(sampled(Endless("fail"), 3)) == 1
