"""The record of replicas in a real Redis: replaced only as it was read, with one holder of the lease."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.redis_server import RedisServer, impostor, needs_redis
from turret.service.errors import ReplicasUnavailableError
from turret.service.settings import Settings
from turret.service.stores.redis.items import RedisItems
from turret.service.stores.redis.records import RedisRecords
from turret.service.stores.registry import open_records

pytestmark = needs_redis


def work_with(address: str, work: Callable[[RedisRecords], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        records = RedisRecords(address, "default", 0.5)
        try:
            await work(records)
        finally:
            await records.close()

    asyncio.run(run())


def test_a_record_is_replaced_only_by_a_caller_that_knows_it(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        assert (await records.view()).record == b""
        assert await records.swap(b"", b"one") == b"one"
        assert await records.swap(b"", b"two") == b"one"
        assert await records.swap(b"one", b"two") == b"two"
        assert (await records.view()).record == b"two"

    work_with(server.address, work)


def test_a_lease_has_one_holder_until_it_returns_it_or_ends(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        assert await records.take_lease("a", 10)
        assert not await records.take_lease("b", 10)
        assert not await records.prolong_lease("b", 0)
        assert await records.take_lease("a", 0.05)  # prolonged, or here shortened
        await asyncio.sleep(0.1)
        assert await records.take_lease("b", 10)
        assert await records.prolong_lease("b", 0)
        assert not await records.prolong_lease("b", 10)  # a late call takes nothing
        assert await records.take_lease("a", 10)

    work_with(server.address, work)


def test_reports_are_read_with_their_age_until_they_are_forgotten(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        await records.view("a", b"first", 60)
        await asyncio.sleep(0.2)
        view = await records.view("b", b"report", 60)
        assert {beat.replica: beat.report for beat in view.beats} == {"a": b"first", "b": b"report"}
        ages = {beat.replica: beat.age for beat in view.beats}
        assert 0.15 < ages["a"] < 5
        assert ages["b"] < 0.1
        assert [beat.replica for beat in (await records.view("b", b"report", 0.1)).beats] == ["b"]
        await records.leave("b")
        assert (await records.view()).beats == ()

    work_with(server.address, work)


def test_a_view_has_the_number_of_the_last_change_of_an_item(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        items = RedisItems(server.address)
        assert (await records.view()).items == 0
        number = await items.put("7", b"{}", b"{}", 0)
        assert (await records.view()).items == number
        await items.close()

    work_with(server.address, work)


def test_groups_and_prefixes_have_records_of_their_own(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        await records.swap(b"", b"one")
        others = (
            RedisRecords(server.address, "shop", 0.5),
            RedisRecords(f"{server.address}?prefix=x:", "default", 0.5),
        )
        for other in others:
            assert (await other.view()).record == b""
            await other.close()

    work_with(server.address, work)


@pytest.mark.parametrize("key", ["live", "reports", "times"])
def test_a_key_with_other_data_is_an_error_in_words(server: RedisServer, key: str) -> None:
    async def work(records: RedisRecords) -> None:
        server.ask("SADD", f"turret:replicas:default:{key}", "x")
        with pytest.raises(ReplicasUnavailableError, match=r"has a key turret:\* of another service"):
            await records.view("a", b"report", 60)

    work_with(server.address, work)


def test_a_redis_that_is_down_hangs_or_is_none_is_an_error_in_time(server: RedisServer) -> None:
    async def work(records: RedisRecords) -> None:
        with server.paused():
            begun = time.monotonic()
            with pytest.raises(ReplicasUnavailableError, match=r"no reply within 0\.5 seconds"):
                await records.view()
            assert time.monotonic() - begun < 2
        server.kill()
        with pytest.raises(ReplicasUnavailableError, match="unavailable"):
            await records.take_lease("a", 10)

    work_with(server.address, work)
    with impostor(b"+hello\r\n" * 8) as port:
        work_with(f"redis://127.0.0.1:{port}/0", _meet)


async def _meet(records: RedisRecords) -> None:
    with pytest.raises(ReplicasUnavailableError, match="not a Redis"):
        await records.view()
    assert not await records.take_lease("a", 10)


def test_only_a_redis_has_records() -> None:
    assert open_records(Settings(store="memory://")) is None
    assert open_records(Settings(store="sqlite:///x")) is None
    assert isinstance(open_records(Settings(store="redis://localhost:6379/0")), RedisRecords)
