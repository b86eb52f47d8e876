"""What every store of items has to do; a new store is one more line in `stores.ADDRESSES`."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.stores import ADDRESSES, LASTING, SHARED, THIRD_PARTY, Opening
from tests.support.redis_server import place_in_redis, sweep
from turret.service.errors import ItemsOvertakenError
from turret.service.overlay.apply_changes import _is_valid
from turret.service.stores.contract import Change, ItemStore
from turret.service.stores.redis.calls import Command
from turret.service.stores.redis.items import RedisItems

Work = Callable[[ItemStore], Coroutine[Any, Any, None]]
Run = Callable[[Work], None]

# Puts items and, after each, says so; the parent kills it in the middle.
WRITER = """
import asyncio, sys
from turret.service.settings import Settings
from turret.service.stores.registry import open_stores
async def write():
    sys.path.append(sys.argv[2])
    store = open_stores(Settings(store=sys.argv[1])).items
    for number in range(100000):
        await store.put(f"i{number}", b"{}", b"{}", number)
        print(number, flush=True)
asyncio.run(write())
"""


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    made = ADDRESSES[request.param](tmp_path)
    yield made
    sweep(made)


@pytest.fixture
def opening() -> Iterator[Opening]:
    opening = Opening()
    yield opening
    opening.close()


@pytest.fixture
def run(address: str, opening: Opening) -> Run:
    """Run a coroutine with a store, and close the store."""

    async def with_store(work: Work) -> None:
        store = opening.items(address)
        try:
            await work(store)
        finally:
            await store.close()

    return lambda work: asyncio.run(with_store(work))


def test_an_empty_store_has_seen_nothing(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        assert await store.changes(0) == (0, [])

    run(work)


def test_what_was_put_comes_back_as_it_went_in(run: Run) -> None:
    """Ids and contents may hold what is special to SQL, to Redis, to text and to lines."""
    given = [
        ("7", b"{}", b"{}"),
        ("a\0b", b'{"a":"\\n"}', '{"title":"é 🎬"}'.encode()),
        ("'; DROP TABLE items; --", b'{"n":1e300}', b"[]"),
        ("x\ny é", b'{"a":[1,2]}', b'{"b":null}'),
    ]

    async def work(store: ItemStore) -> None:
        for time, one in enumerate(given):
            assert await store.put(*one, time) == time + 1
        expected = [Change(one[0], time + 1, time, *one[1:]) for time, one in enumerate(given)]
        assert await store.changes(0) == (4, expected)
        assert not any(one.is_withdrawn for one in expected)

    run(work)


def test_only_what_is_newer_is_given(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        for name in ("a", "b", "c"):
            await store.put(name, b"{}", b"{}", 5)
        assert [one.item for one in (await store.changes(1)).items] == ["b", "c"]
        assert await store.changes(3) == (3, [])

    run(work)


def test_the_last_change_of_an_item_is_the_one_that_counts(run: Run) -> None:
    """It moves behind the others, and nobody who has seen the first misses it."""

    async def work(store: ItemStore) -> None:
        await store.put("a", b"1", b"2", 5)
        await store.put("b", b"{}", b"{}", 5)
        seen = (await store.changes(0)).last
        assert await store.put("a", b"3", b"4", 6) == 3
        assert await store.changes(seen) == (3, [Change("a", 3, 6, b"3", b"4")])
        assert [one.item for one in (await store.changes(0)).items] == ["b", "a"]

    run(work)


def test_a_withdrawn_item_is_remembered_without_what_was_known_of_it(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        await store.put("a", b"{}", b"{}", 5)
        assert await store.withdraw("a", 6) == 2
        assert await store.changes(1) == (2, [Change("a", 2, 6, None, None)])
        await store.withdraw("never seen", 7)
        await store.put("a", b"{}", b"{}", 8)
        expected = [Change("never seen", 3, 7, None, None), Change("a", 4, 8, b"{}", b"{}")]
        assert await store.changes(0) == (4, expected)
        assert [one.is_withdrawn for one in expected] == [True, False]

    run(work)


def test_a_change_that_is_sent_again_leaves_what_it_left(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        for _ in range(3):
            await store.put("a", b"{}", b"1", 5)
        assert [(one.item, one.fields) for one in (await store.changes(0)).items] == [("a", b"1")]
        for _ in range(3):
            await store.withdraw("a", 6)
        assert [one.is_withdrawn for one in (await store.changes(0)).items] == [True]

    run(work)


def test_many_at_the_same_time_each_have_a_number_of_their_own(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        puts = (store.put(f"i{number % 30}", b"{}", b"{}", number) for number in range(60))
        numbers = await asyncio.gather(*puts)
        assert sorted(numbers) == list(range(1, 61))
        found = await store.changes(0)
        assert found.last == 60
        assert len({one.item for one in found.items}) == len(found.items) == 30
        order = [one.number for one in found.items]
        assert order == sorted(order)

    run(work)


def test_a_change_that_would_come_too_late_is_not_made(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        assert await store.put("a", b"{}", b"{}", 5, 1) == 1
        for highest in (0, 1):
            with pytest.raises(ItemsOvertakenError):
                await store.put("b", b"{}", b"{}", 5, highest)
            with pytest.raises(ItemsOvertakenError):
                await store.put("a", b"1", b"1", 5, highest)
        assert await store.changes(0) == (1, [Change("a", 1, 5, b"{}", b"{}")])
        assert await store.put("b", b"{}", b"{}", 5, 2) == 2
        assert await store.withdraw("b", 5) == 3
        calls = (store.put(f"i{n}", b"{}", b"{}", 5, 10) for n in range(20))
        made = await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(one for one in made if isinstance(one, int)) == list(range(4, 11))
        assert sum(isinstance(one, ItemsOvertakenError) for one in made) == 13

    run(work)


def test_more_than_a_page_of_them_come_whole_and_in_order(run: Run) -> None:
    async def work(store: ItemStore) -> None:
        for number in range(0, 2300, 100):
            await asyncio.gather(*(store.put(f"i{number + n}", b"{}", b"{}", 0) for n in range(100)))
        found = await store.changes(0)
        assert [one.number for one in found.items] == list(range(1, 2301))
        assert found.last == 2300

    run(work)


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_two_that_are_open_at_once_see_each_other(address: str, opening: Opening) -> None:
    """As two workers do."""

    async def work() -> None:
        one, other = opening.items(address), opening.items(address)
        try:
            await one.put("a", b"{}", b"{}", 1)
            assert (await other.changes(0)).last == 1
            await other.withdraw("a", 2)
            assert [change.is_withdrawn for change in (await one.changes(1)).items] == [True]
        finally:
            await one.close()
            await other.close()

    asyncio.run(work())


@pytest.mark.parametrize("address", LASTING, indirect=True)
def test_what_was_acknowledged_survives_a_killed_process(address: str, opening: Opening) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, address, str(THIRD_PARTY)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.stdout.close()
    writer.wait()

    async def work() -> list[str]:
        store = opening.items(address)
        try:
            return [one.item for one in (await store.changes(0)).items]
        finally:
            await store.close()

    found = asyncio.run(work())
    assert found[: len(acknowledged)] == [f"i{number}" for number in acknowledged]
    assert len(found) <= len(acknowledged) + 1


def test_what_somebody_else_wrote_into_a_redis_stands_for_itself_alone(tmp_path: Path) -> None:
    """It is read as what is no item, which `service.overlay.apply_changes` leaves alone; the rest is read."""
    address = place_in_redis(tmp_path)
    store = RedisItems(address)

    async def work() -> None:
        await store.put("a", b"{}", b"{}", 5)
        number, items, order = store._keys
        for strange, kept in ((b"\xff\xfe", b"x"), (b"b", b"{}"), (b"gone", None)):
            commands: list[Command] = [["ZADD", order, 7, strange], ["SET", number, 7]]
            await store._redis.execute(commands + ([["HSET", items, strange, kept]] if kept else []))
        found = {one.item: one for one in (await store.changes(0)).items}
        assert found.pop("a") == Change("a", 1, 5, b"{}", b"{}")
        assert set(found) == {"\\xff\\xfe", "b", "gone"}
        assert not any(one.is_withdrawn for one in found.values())
        assert not any(_is_valid(one) for one in found.values())
        await store.close()

    try:
        asyncio.run(work())
    finally:
        sweep(address)
