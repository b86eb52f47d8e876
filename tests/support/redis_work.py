"""A RedisHistory with a short timeout."""

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turret.service.errors import HistoryUnavailableError
from turret.service.stores.contract import Event
from turret.service.stores.redis.histories import RedisHistory

EVENT = Event("e", "u", 1, 0)


@asynccontextmanager
async def history(address: str, seconds: float = 0.3, **options: Any) -> AsyncIterator[RedisHistory]:
    store = RedisHistory(address, seconds=seconds, **options)
    try:
        yield store
    finally:
        await store.close()


async def refused(call: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(HistoryUnavailableError) as caught:
        await call
    return str(caught.value)
