"""Several processes on one store of histories."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.stores import ADDRESSES, SHARED, THIRD_PARTY
from tests.support.redis_server import sweep
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores

WRITER = """
import asyncio, json, sys
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores
from turret.service.settings import Settings
async def main(address, name, folder):
    sys.path.append(folder)
    store = open_stores(Settings.model_validate({"store": address})).histories
    stored = 0
    for number in range(60):
        own = Event(f"{name}-{number}", "u", number, number)
        stored += await store.append([own, Event(f"both-{number}", "u", number, number)])
    print(stored, flush=True)
    await store.close()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("name", SHARED)
def test_processes_that_write_together_lose_and_double_nothing(name: str, tmp_path: Path) -> None:
    """They also begin together, on a store that isn't there yet."""
    address = ADDRESSES[name](tmp_path)
    here = Path(__file__).parents[2]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, address, str(number), str(THIRD_PARTY)],
            cwd=here,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    stored = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    assert sum(stored) == 4 * 60

    async def read() -> tuple[int, list[Event]]:
        stores = open_stores(Settings(store=address))
        try:
            return await stores.histories.events("u", 1_000)
        finally:
            await stores.close()

    total, events = asyncio.run(read())
    sweep(address)
    assert total == len({one.event_id for one in events}) == 4 * 60
    assert [one.time for one in events] == sorted(one.time for one in events)
