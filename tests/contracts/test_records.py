"""Every store of the members' record keeps the contract, as do processes that share one."""

import asyncio
from pathlib import Path

import pytest

from tests.contracts.record_checks import check_records
from tests.contracts.stores import ADDRESSES, marked
from tests.support.redis_server import sweep
from turret.service.stores.redis.shared import RedisRecords
from turret.service.stores.sqlite.shared import SqliteRecords


def test_a_file_keeps_the_contract(tmp_path: Path) -> None:
    asyncio.run(check_records(lambda: SqliteRecords(tmp_path / "record.sqlite")))


@pytest.mark.parametrize("name", marked(["redis", "redis+cluster"]))
def test_a_redis_keeps_the_contract(name: str, tmp_path: Path) -> None:
    address = ADDRESSES[name](tmp_path)
    asyncio.run(check_records(lambda: RedisRecords(address, "default", 5.0)))
    sweep(address)
