"""What every store of histories has to do; a new store is one more line in STORES."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.history.contract import Event, HistoryStore
from service.history.memory import MemoryHistory
from service.history.sqlite import SqliteHistory

STORES: dict[str, Callable[[Path], HistoryStore]] = {
    "memory": lambda folder: MemoryHistory(),
    "sqlite": lambda folder: SqliteHistory(folder / "histories.sqlite"),
}
Work = Callable[[HistoryStore], Coroutine[Any, Any, None]]


@pytest.fixture(params=sorted(STORES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Work], None]:
    """Run a coroutine with a fresh store, and close the store."""

    async def with_store(work: Work) -> None:
        store = STORES[request.param](tmp_path)
        try:
            await work(store)
        finally:
            await store.close()

    return lambda work: asyncio.run(with_store(work))


Run = Callable[[Work], None]


def event(number: int, user: str = "u", item: int | str = 1, time: int = 0, kind: str | None = None) -> Event:
    return Event(f"e{number}", user, item, time, kind)


async def items(store: HistoryStore, users: Sequence[str], limit: int) -> dict[str, list[int | str]]:
    """What each user's newest events are about."""
    return {user: [one.item for one in events] for user, events in (await store.recent(users, limit)).items()}


def test_what_is_appended_is_read_at_once(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        assert await store.append([event(1, item=7), event(2, item="seven"), event(3, "v", item=8)]) == 3
        assert await items(store, ["u", "v", "w"], 10) == {"u": [7, "seven"], "v": [8], "w": []}

    run(work)


def test_an_event_id_is_stored_once_and_the_first_one_stays(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        assert await store.append([event(1, item=1), event(1, item=2)]) == 1
        assert await store.append([event(1, item=3), event(2, item=4)]) == 1
        assert await items(store, ["u"], 10) == {"u": [1, 4]}

    run(work)


def test_the_order_is_by_time_and_then_by_arrival(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(1, item="b", time=5), event(2, item="c", time=5)])
        await store.append([event(3, item="a", time=-1), event(4, item="d", time=5)])
        assert await items(store, ["u"], 10) == {"u": ["a", "b", "c", "d"]}

    run(work)


def test_a_limit_keeps_the_newest(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        events = [event(number, item=number, time=number) for number in range(9)]
        await store.append(events[::-1])
        assert await items(store, ["u"], 3) == {"u": [6, 7, 8]}
        assert await store.events("u", 2) == (9, events[-2:])
        assert await store.recent(["u"], 2) == {"u": events[-2:]}

    run(work)


def test_events_come_back_as_they_went_in(run: Run) -> None:
    """Also with what is special to SQL, to text and to 64 bits."""
    events = [
        event(1, item="42", time=1, kind="view"),
        event(2, item=42, time=2),
        event(3, item=2**63 - 1, time=3),
        event(4, item=-(2**63), time=4),
        event(5, item="'; DROP TABLE events; --", time=5),
        event(6, item="a\0b", time=6),
        event(7, item="🎬 café", time=7, kind=""),
        event(8, item="1e3", time=253_402_300_799_999),
    ]

    async def work(store: HistoryStore) -> None:
        await store.append(events)
        assert await store.events("u", 100) == (8, events)
        assert [type(item) for item in (await items(store, ["u"], 2))["u"]] == [str, str]

    run(work)


def test_a_forgotten_user_is_gone_and_others_stay(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(1), event(2), event(3, "v")])
        assert await store.forget("u") == 2
        assert await store.forget("u") == 0
        assert await store.events("u", 10) == (0, [])
        assert await items(store, ["u", "v"], 10) == {"u": [], "v": [1]}
        assert await store.append([event(1)]) == 1

    run(work)


def test_many_at_the_same_time_lose_nothing(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        stored = await asyncio.gather(
            *(store.append([event(number, item=number), event(999)]) for number in range(40))
        )
        assert sum(stored) == 41
        total, events = await store.events("u", 100)
        assert total == 41
        assert len({one.event_id for one in events}) == 41

    run(work)


def test_nothing_is_asked_of_it_for_nobody(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        assert await store.append([]) == 0
        assert await items(store, [], 10) == {}

    run(work)
