import asyncio
import time
from collections.abc import Sequence

import pytest

from turret.service.errors import HistoryDamagedError, HistoryUnavailableError
from turret.service.stores.breaker import Breaker
from turret.service.stores.contract import Event, History
from turret.service.stores.memory import MemoryHistory
from turret.tower.engines.circuit import Circuit

EVENT = Event("e", "u", 1, 0)


class Moody(MemoryHistory):
    """A store that answers, fails or hangs, by its `mood`."""

    mood: Exception | float = 0.0
    asked = 0

    async def append(self, events: Sequence[Event]) -> int:
        await self._feel()
        return await super().append(events)

    async def recent(self, users: Sequence[str], limit: int) -> dict[str, History]:
        await self._feel()
        return await super().recent(users, limit)

    async def health_warnings(self) -> list[str]:
        await self._feel()
        return ["a warning"]

    async def _feel(self) -> None:
        self.asked += 1
        if isinstance(self.mood, Exception):
            raise self.mood
        await asyncio.sleep(self.mood)


@pytest.fixture
def store() -> Moody:
    return Moody()


@pytest.fixture
def breaker(store: Moody) -> Breaker:
    return Breaker(store, 0.05, 0.1, lambda: Circuit(2, 0.3))


async def refused(breaker: Breaker) -> HistoryUnavailableError:
    with pytest.raises(HistoryUnavailableError) as caught:
        await breaker.recent(["u"], 1)
    return caught.value


@pytest.mark.nightly
def test_a_slow_store_costs_its_budget_and_then_nothing(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = 60.0
        assert "timed out after 0.05 seconds" in str(await refused(breaker))
        await refused(breaker)
        start = time.monotonic()
        for _ in range(100):
            assert "circuit open" in str(await refused(breaker))
        assert (store.asked, time.monotonic() - start < 0.25) == (2, True)

    asyncio.run(work())


def test_it_comes_back_by_itself(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = HistoryUnavailableError("gone")
        await refused(breaker)
        await refused(breaker)
        store.mood = 0.0
        await refused(breaker)
        await asyncio.sleep(0.35)
        assert await breaker.recent(["u"], 1) == {"u": History([], [])}
        assert breaker.circuits["read"].state == "closed"

    asyncio.run(work())


def test_what_can_not_be_written_can_still_be_read(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = HistoryUnavailableError("the disk is full")
        for _ in range(3):
            with pytest.raises(HistoryUnavailableError):
                await breaker.append([EVENT])
        store.mood = 0.0
        assert await breaker.recent(["u"], 1) == {"u": History([], [])}
        assert {name: one.state for name, one in breaker.circuits.items()} == {
            "read": "closed",
            "write": "open",
        }

    asyncio.run(work())


def test_an_append_that_ran_out_of_time_can_be_sent_again(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = 60.0
        with pytest.raises(HistoryUnavailableError):
            await breaker.append([EVENT])
        store.mood = 0.0
        assert await breaker.append([EVENT]) + await breaker.append([EVENT]) == 1

    asyncio.run(work())


def test_the_damaged_data_of_one_user_opens_nothing(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = HistoryDamagedError("not an event")
        for _ in range(5):
            assert "not an event" in str(await refused(breaker))
        assert breaker.circuits["read"].state == "closed"

    asyncio.run(work())


def test_a_caller_that_goes_away_is_no_failure(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = 0.04
        for _ in range(5):
            call = asyncio.ensure_future(breaker.recent(["u"], 1))
            await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert (breaker.circuits["read"].failed, breaker.circuits["read"].state) == (0, "closed")

    asyncio.run(work())


def test_a_fault_of_the_store_itself_is_not_hidden_and_counts(store: Moody, breaker: Breaker) -> None:
    async def work() -> None:
        store.mood = ZeroDivisionError("a bug")
        with pytest.raises(ZeroDivisionError):
            await breaker.recent(["u"], 1)
        assert breaker.circuits["read"].failed == 1

    asyncio.run(work())


def test_who_is_refused_is_told_when_to_come_back(store: Moody) -> None:
    async def work() -> None:
        breaker = Breaker(store, 1.0, 1.0, lambda: Circuit(1, 30.0))
        store.mood = HistoryUnavailableError("gone")
        assert 29 < (await refused(breaker)).retry_after <= 30
        assert 29 < (await refused(breaker)).retry_after <= 30

    asyncio.run(work())


def test_a_store_that_is_gone_is_warned_of(store: Moody, breaker: Breaker) -> None:
    assert asyncio.run(breaker.health_warnings()) == ["a warning"]
    store.mood = HistoryUnavailableError("the histories are gone")
    (warning,) = asyncio.run(breaker.health_warnings())
    assert warning == "the histories are gone; serving without stored histories"


class Long(Moody):
    """A store with very much of each user."""

    async def events(self, user: str, limit: int) -> tuple[int, list[Event]]:
        await asyncio.sleep(60)
        return await super().events(user, limit)

    async def forget(self, user: str) -> int:
        await asyncio.sleep(60)
        return await super().forget(user)


def test_how_much_there_is_of_a_user_is_no_failure_of_the_store() -> None:
    """Showing and deleting all of it may take longer than there is time; others go on being answered."""

    async def work() -> None:
        breaker = Breaker(Long(), 0.02, 0.02, lambda: Circuit(2, 60.0))
        for _ in range(3):
            for call in (breaker.events("u", 1), breaker.forget("u")):
                with pytest.raises(HistoryUnavailableError, match="timed out"):
                    await call
        assert [one.state for one in breaker.circuits.values()] == ["closed", "closed"]
        assert await breaker.recent(["u"], 1) == {"u": History([], [])}
        assert await breaker.append([EVENT]) == 1

    asyncio.run(work())
