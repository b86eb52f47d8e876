"""Every store keeps the contract, as do processes that share one; a faulty store is noticed."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.store_checks import check_store
from tests.contracts.stores import ADDRESSES, SHARED, STORE_KINDS, THIRD_PARTY, marked
from tests.support.redis_server import sweep
from turret.service.settings import Settings
from turret.service.stores.contract import Event, Stores
from turret.service.stores.guarded import Breaker
from turret.service.stores.registry import open_stores
from turret.service.stores.sqlite.histories import MEMORY


def guarded(settings: Settings) -> Stores:
    histories, items = MEMORY.open(settings)
    return Stores(Breaker(histories, 30.0, 30.0), items)


KINDS = {**STORE_KINDS, "guarded": replace(MEMORY, open=guarded)}


@pytest.mark.fault(24, 57)
@pytest.mark.parametrize("name", marked(KINDS))  # SQLite syncs a thousand times: two seconds
def test_a_store_keeps_the_contract(name: str, tmp_path: Path) -> None:
    addresses: list[str] = []

    def place() -> str:
        folder = tmp_path / f"{tmp_path.name}-{len(addresses)}"
        addresses.append(ADDRESSES["memory" if name == "guarded" else name](folder))
        return addresses[-1]

    check_store(KINDS[name], place)
    for address in addresses:
        sweep(address)


@pytest.mark.parametrize("promise", ["is_lasting", "is_shared"])
def test_a_kind_may_not_promise_more_than_its_stores_keep(promise: str) -> None:
    kind = replace(MEMORY, is_lasting=promise == "is_lasting", is_shared=promise == "is_shared")
    with pytest.raises(AssertionError, match=r"^(a lasting store keeps all|an open store reads the changes)"):
        check_store(kind, lambda: "memory://")


# Stores events and items and says so, until it is done or killed.
WRITER = """
import asyncio, sys
from turret.service.settings import Settings
from turret.service.stores.contract import Event, NewChange
from turret.service.stores.registry import open_stores
async def write(address, name, folder):
    sys.path.append(folder)
    stores = open_stores(Settings(store=address))
    for number in range(60):
        own = Event(f"{name}-{number}", "u", number, number)
        await stores.histories.append([own, Event(f"both-{number}", "u", number, number)])
        await stores.items.change([NewChange(own.event_id, number, b"{}", b"{}")])
        print(own.event_id, flush=True)
    await stores.close()
asyncio.run(write(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.process if name == "sqlite" else pytest.mark.nightly)
        for name in SHARED
    ],
)
def test_processes_that_write_together_lose_and_double_nothing_though_one_is_killed(
    name: str, tmp_path: Path
) -> None:
    """They also begin together, on a store that isn't there yet."""
    address = ADDRESSES[name](tmp_path)
    words = [[sys.executable, "-c", WRITER, address, name, str(THIRD_PARTY)] for name in ("a", "b", "c")]
    killed, *others = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    assert killed.stdout is not None
    acknowledged = [killed.stdout.readline().strip() for _ in range(10)]
    killed.kill()
    for writer in (killed, *others):
        acknowledged += writer.communicate()[0].split()
    assert [writer.returncode for writer in others] == [0, 0]

    async def read() -> tuple[list[Event], list[str]]:
        stores = open_stores(Settings(store=address))
        try:
            _, events = await stores.histories.events("u", 1_000)
            return events, [change.item for change in (await stores.items.changes(0)).items]
        finally:
            await stores.close()

    events, items = asyncio.run(read())
    sweep(address)
    ids = [event.event_id for event in events]
    expected = {*acknowledged, *(f"both-{number}" for number in range(60))}
    assert len(ids) == len(set(ids))
    assert expected <= set(ids) <= expected | {f"a-{number}" for number in range(60)}
    assert len(ids) <= len(expected) + 1
    assert set(acknowledged) <= set(items)
    assert [event.time for event in events] == sorted(event.time for event in events)
