"""Runs a coroutine with a RedisHistory that has a short timeout."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event
from turret.service.stores.redis.histories import RedisHistory

EVENT = Event("e", "u", 1, 0)


def work_with(
    address: str, work: Callable[[RedisHistory], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def run() -> None:
        store = RedisHistory(address, **{"seconds": 0.3, **options})
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


async def refused(call: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(HistoryUnavailableError) as caught:
        await call
    return str(caught.value)
