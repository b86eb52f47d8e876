"""What every store of histories has to do; a new store is one more line in `stores.ADDRESSES`."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.stores import ADDRESSES, Opening
from tests.support.redis_server import sweep
from turret.service.stores.breaker import Breaker
from turret.service.stores.contract import Event, History, HistoryStore

DAY = 86_400_000
# A breaker has nothing to do with the number of servers.
STORES = [*ADDRESSES, *(f"{name}, guarded" for name in ADDRESSES if name != "redis+cluster")]
Open = Callable[..., HistoryStore]
Work = Callable[[HistoryStore], Coroutine[Any, Any, None]]


@pytest.fixture(params=STORES)
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Open a store of one place, empty at first; `keep_days` and the like are settings."""
    name, _, guarded = request.param.partition(", ")
    address, opening = ADDRESSES[name](tmp_path), Opening()

    def begin(**settings: Any) -> HistoryStore:
        store = opening.histories(address, **settings)
        return Breaker(store, 30.0, 30.0) if guarded else store

    yield begin
    opening.close()
    sweep(address)


@pytest.fixture
def run(open_one: Open) -> Callable[[Work], None]:
    """Run a coroutine with a store, and close the store."""

    async def with_store(work: Work) -> None:
        store = open_one()
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
    return {user: list(found.items) for user, found in (await store.recent(users, limit)).items()}


def used(events: Sequence[Event]) -> History:
    """What is read of events for a recommendation."""
    return History([one.item for one in events], [one.time for one in events])


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


def test_an_event_id_is_the_users_own(run: Run) -> None:
    """Whoever has used it before, nobody can keep an event of another user from being stored."""

    async def work(store: HistoryStore) -> None:
        assert await store.append([event(1, "u", 1), event(1, "v", 2)]) == 2
        assert await store.append([event(1, "w", 3), event(1, "u", 4)]) == 1
        assert await items(store, ["u", "v", "w"], 10) == {"u": [1], "v": [2], "w": [3]}
        assert await store.forget("v") == 1
        assert await store.append([event(1, "v", 5), event(1, "u", 6), event(1, "w", 7)]) == 1
        assert await items(store, ["u", "v", "w"], 10) == {"u": [1], "v": [5], "w": [3]}

    run(work)


def test_no_two_pairs_of_user_and_event_id_are_one(run: Run) -> None:
    """Whatever separates the two where they are written together."""
    names = ["", "a", "b", "ab", ":", "a:b", "a:", "\0", "a\0b", "1", "11", "ids:a", "\n"]
    events = [Event(one, f"x{user}", 1, 1) for user in names for one in names]

    async def work(store: HistoryStore) -> None:
        assert await store.append(events) == len(events)
        assert await store.append(events) == 0

    run(work)


def test_the_order_is_by_time_and_then_by_arrival(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(1, item="b", time=5), event(2, item="c", time=5)])
        await store.append([event(3, item="a", time=-1), event(4, item="d", time=5)])
        assert await items(store, ["u"], 10) == {"u": ["a", "b", "c", "d"]}

    run(work)


def test_equal_times_stay_in_the_order_of_arrival_however_many_they_are(run: Run) -> None:
    """Also where the ids, the items and the numbers of arrival would sort otherwise as texts."""

    async def work(store: HistoryStore) -> None:
        names = [f"{number % 7}-{number}" for number in range(120)]
        for first in range(0, 120, 12):
            await store.append([Event(one, "u", one, 9) for one in names[first : first + 12]])
        assert await items(store, ["u"], 200) == {"u": names}
        assert await items(store, ["u"], 5) == {"u": names[-5:]}

    run(work)


def test_any_order_of_arrival_gives_the_order_of_times(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        times = [random.Random(7).randrange(-5, 50) for _ in range(300)]
        events = [event(number, item=number, time=one) for number, one in enumerate(times)]
        for first in range(0, 300, 50):
            await store.append(events[first : first + 50])
        expected = sorted(events, key=lambda one: one.time)
        assert await store.events("u", 1000) == (300, expected)
        assert await store.recent(["u"], 1000) == {"u": used(expected)}

    run(work)


def test_a_limit_keeps_the_newest(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        events = [event(number, item=number, time=number) for number in range(9)]
        await store.append(events[::-1])
        assert await items(store, ["u"], 3) == {"u": [6, 7, 8]}
        assert await store.events("u", 2) == (9, events[-2:])
        assert await store.recent(["u"], 2) == {"u": used(events[-2:])}

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


def test_ids_are_any_text(run: Run) -> None:
    """Users, event ids and kinds: none is taken for another, or for something of the store's own."""
    names = ["é", "e\u0301", "🎬", "a b", "a\nb", "a\0b", "a\0", "'\"\\", "{x}*?[y]", "x:y", "id:1", " ", "7"]
    names += ["07", "x" * 512, "\u202e", "user:7", "arrival", "\ufeff", "A", "a"]
    events = [Event(f"{one}", one, one, place, one) for place, one in enumerate(names)]

    async def work(store: HistoryStore) -> None:
        assert await store.append(events) == len(names)
        assert await store.append(events) == 0
        found = await store.recent(names, 10)
        assert found == {one.user: used([one]) for one in events}
        for stored in events:
            assert await store.events(stored.user, 10) == (1, [stored])
        for one in names:
            assert await store.forget(one) == 1
        assert await store.append(events) == len(names)

    run(work)


def test_a_forgotten_user_is_gone_and_others_stay(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(1), event(2), event(3, "v")])
        assert await store.forget("u") == 2
        assert await store.forget("u") == 0
        assert await store.events("u", 10) == (0, [])
        assert await items(store, ["u", "v"], 10) == {"u": [], "v": [1]}

    run(work)


def test_nothing_is_known_of_a_forgotten_user_not_even_the_event_ids(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(1, item=1), event(2, item=2)])
        await store.forget("u")
        assert await store.append([event(1, item=3)]) == 1
        assert await store.append([event(2, "v", item=4), event(2, "u", item=5)]) == 2
        assert await items(store, ["u", "v"], 10) == {"u": [3, 5], "v": [4]}

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


def test_nobody_reads_the_answer_of_another(run: Run) -> None:
    """Also after calls whose callers went away in the middle."""

    async def work(store: HistoryStore) -> None:
        await store.append([event(number, f"u{number}", number) for number in range(50)])
        for turn in range(10):
            calls = [asyncio.ensure_future(store.recent([f"u{number}"], 1)) for number in range(50)]
            for _ in range(turn):
                await asyncio.sleep(0)
            for call in calls[::3]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            for number, call in enumerate(calls):
                if not call.cancelled():
                    assert call.result() == {f"u{number}": used([event(number, f"u{number}", number)])}

    run(work)


def test_huge_batches(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        events = [event(number, f"u{number % 3}", "x" * 50, number) for number in range(20_000)]
        assert await store.append(events) == 20_000
        total, newest = await store.events("u0", 1_000)
        assert (total, newest) == (6_667, events[::3][-1_000:])
        users = [f"u{number}" for number in range(100)]
        found = await store.recent(users, 10_000)
        assert [len(found[user].items) for user in users] == [6_667, 6_667, 6_666] + [0] * 97
        assert await store.forget("u1") == 6_667

    run(work)


def test_a_user_of_very_many_events_is_forgotten_while_others_write(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        await store.append([event(number, item=number, time=number) for number in range(25_000)])
        others = (store.append([event(number, "v", number)]) for number in range(5))
        deleted, *stored = await asyncio.gather(store.forget("u"), *others)
        assert (deleted, stored) == (25_000, [1] * 5)
        assert await store.events("u", 10) == (0, [])
        assert (await store.events("v", 10))[0] == 5
        assert await store.append([event(1)]) == 1

    run(work)


def test_a_random_user_has_events(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        assert await store.random_user() is None
        users = [f"u{number:03d}" for number in range(40)]
        await store.append([event(1, user) for user in users])
        drawn = {await store.random_user() for _ in range(200)}
        assert len(drawn) > 10
        assert drawn <= set(users)
        for user in users[1:]:
            await store.forget(user)
        assert {await store.random_user() for _ in range(20)} == {users[0]}

    run(work)


def test_a_user_whose_events_have_expired_is_not_drawn(open_one: Open) -> None:
    now = time.time_ns() // 1_000_000

    async def work() -> None:
        before = open_one()
        await before.append([event(1, "old", time=now - 4 * DAY), event(2, "young", time=now)])
        await before.close()
        store = open_one(keep_days=2)
        await store.append([event(2, "young", time=now)])  # memory has forgotten it
        assert {await store.random_user() for _ in range(20)} == {"young"}
        await store.close()

    asyncio.run(work())


def test_nothing_is_asked_of_it_for_nobody(run: Run) -> None:
    async def work(store: HistoryStore) -> None:
        assert await store.append([]) == 0
        assert await items(store, [], 10) == {}

    run(work)


def test_what_is_older_than_it_keeps_is_neither_stored_nor_read(open_one: Open) -> None:
    """Nor is its event id known any longer; what was stored before this was asked for is treated alike."""
    now = time.time_ns() // 1_000_000
    old, young = event(1, time=now - 3 * DAY), event(2, time=now - DAY)

    async def work() -> None:
        before = open_one()
        await before.append([event(3, time=now - 4 * DAY)])
        await before.close()
        store = open_one(keep_days=2)
        assert await store.events("u", 10) == (0, [])
        assert await store.append([old, young]) == 1
        assert await store.events("u", 10) == (1, [young])
        assert await store.append([event(3, time=now)]) == 1
        assert await store.recent(["u"], 10) == {"u": used([young, event(3, time=now)])}
        assert await store.forget("u") == 2
        await store.close()

    asyncio.run(work())
