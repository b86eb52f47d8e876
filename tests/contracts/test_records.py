"""Every store of the members' record keeps the contract, as do processes that share one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.store_checks import expect
from tests.contracts.stores import ADDRESSES, marked
from tests.support.redis_server import sweep
from turret.service.stores.contract import RecordStore
from turret.service.stores.redis.shared import RedisRecords
from turret.service.stores.sqlite.shared import SqliteRecords

_RECORDS = (b"one", b"two", b"\0\xff'\n" * 25_000, b"{}")
_NAMES = ("127.0.0.1:8000/7", "[::1]:8000/7", "shop-0.é:80/123456")
_SHORT, _LONG = 0.05, 60.0  # seconds


async def check_records(make: Callable[[], RecordStore]) -> None:
    """Raise AssertionError, with a sentence, unless the stores that `make` opens keep the contract.

    Each is that of another member; all have one record, which is empty before. The numbers of items come from
    elsewhere, so they are not checked.
    """
    one, other = make(), make()
    try:
        for check in (_check_record, _check_races, _check_members, _check_lease):
            await check(one, other)
    finally:
        await one.close()
        await other.close()


async def _check_record(one: RecordStore, other: RecordStore) -> None:
    expect("a record that was never written is empty", await one.read(), b"")
    expect("a record that was never written has revision 0", (await one.poll()).record, 0)
    before, revisions = b"", {0}
    for number, record in enumerate((*_RECORDS, *_RECORDS), start=2):
        refused = await other.swap(b"another", b"lost")
        expect("a swap of another record returns the record", refused, before)
        expect("a swap returns the new record", await one.swap(before, record), record)
        expect("every member reads the record", (await one.read(), await other.read()), (record, record))
        expect("every member has one revision", (await one.poll()).record, (await other.poll()).record)
        revisions.add((await other.poll()).record)
        expect("each replacement has another revision, and a refused one none", len(revisions), number)
        before, one, other = record, other, one
    await one.swap(before, before)
    revisions.add((await other.poll()).record)
    expect("a replacement by the same record has another revision", len(revisions), number + 1)


async def _check_races(one: RecordStore, other: RecordStore) -> None:
    before = await one.read()
    wanted = [b"%d" % number for number in range(30)]
    stores = [one, other] * 15
    swaps = (store.swap(before, record) for store, record in zip(stores, wanted, strict=True))
    found = set(await asyncio.gather(*swaps))
    expect("of swaps at one time one succeeds, and all return its record", found, {await one.read()})
    expect("the record is that of one of the swaps", found <= set(wanted))


async def _check_members(one: RecordStore, other: RecordStore) -> None:
    expect("there are no members before the first report", await one.members(), ())
    await one.leave("nobody")
    state = await one.poll()
    for name in _NAMES:
        await one.members(name, b"first", _LONG)
    listed = await one.members(_NAMES[0], b"\0\xff", _LONG)
    wanted = dict.fromkeys(_NAMES, b"first") | {_NAMES[0]: b"\0\xff"}
    for members in (listed, await other.members()):
        expect("the last report of each member", {member.name: member.report for member in members}, wanted)
        expect("each member is listed once", len(members), len(_NAMES))
        ages = {member.name: member.age for member in members}
        expect("reports have just been made", all(0 <= age < _LONG for age in ages.values()))
        expect("a later report is younger", ages[_NAMES[0]] <= min(ages.values()))
    await other.leave(_NAMES[1])
    names = sorted(member.name for member in await one.members())
    expect("a member that has left is not listed", names, sorted({*_NAMES} - {_NAMES[1]}))
    while len(await other.members(_NAMES[0], b"", _SHORT)) > 1:
        await asyncio.sleep(_SHORT / 5)
    names = [member.name for member in await one.members()]
    expect("a silent member is forgotten, and the one that reports is not", names, [_NAMES[0]])
    await asyncio.sleep(2 * _SHORT)
    ages = {member.name: member.age for member in await one.members()}
    expect("nobody is forgotten without a report, and ages grow", ages[_NAMES[0]] > _SHORT)
    await one.leave(_NAMES[0])
    expect("no member is left", await other.members(), ())
    expect("reports change neither number", await one.poll(), state)


async def _check_lease(one: RecordStore, other: RecordStore) -> None:
    expect("a free lease is taken", await one.take_lease("a", _LONG))
    expect("a lease has one holder", await other.take_lease("b", _LONG), False)
    expect("others can't return it", await other.take_lease("b", 0), False)
    expect("the holder may prolong it", await other.take_lease("a", _LONG))
    expect("the holder may take it again, here for a shorter time", await one.take_lease("a", _SHORT))
    while not await other.take_lease("b", _LONG):
        await asyncio.sleep(_SHORT / 5)
    expect("a holder whose time has ended has lost it", await one.take_lease("a", _LONG), False)
    expect("the holder returns it", await other.take_lease("b", 0))
    racing = [store.take_lease(name, _LONG) for name in "cdefg" for store in (one, other)]
    expect("of those that take a free lease one has it", sum(await asyncio.gather(*racing)), 2)


def test_a_file_keeps_the_contract(tmp_path: Path) -> None:
    asyncio.run(check_records(lambda: SqliteRecords(tmp_path / "record.sqlite")))


@pytest.mark.parametrize("name", marked(["redis", "redis+cluster"]))
def test_a_redis_keeps_the_contract(name: str, tmp_path: Path) -> None:
    address = ADDRESSES[name](tmp_path)
    asyncio.run(check_records(lambda: RedisRecords(address, "default", 5.0)))
    sweep(address)
