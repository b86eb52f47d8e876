"""Every store of the members' record keeps the contract, as do processes that share one."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.record_checks import check_records
from tests.contracts.stores import ADDRESSES, marked
from tests.support import virtual_time
from tests.support.memory_records import MemoryRecords, RecordServer
from tests.support.redis_server import sweep
from turret.service.stores.redis.records import RedisRecords
from turret.service.stores.sqlite.records import SqliteRecords


def test_the_fake_keeps_the_contract() -> None:
    server = RecordServer()
    virtual_time.run(check_records(lambda: MemoryRecords(server)))


def test_a_file_keeps_the_contract(tmp_path: Path) -> None:
    asyncio.run(check_records(lambda: SqliteRecords(tmp_path / "record.sqlite")))


@pytest.mark.parametrize("name", marked(["redis", "redis+cluster"]))
def test_a_redis_keeps_the_contract(name: str, tmp_path: Path) -> None:
    address = ADDRESSES[name](tmp_path)
    asyncio.run(check_records(lambda: RedisRecords(address, "default", 5.0)))
    sweep(address)


# Adds lines to the record and says so, until it is done or killed. Two writers never write the same record.
WRITER = """
import asyncio, sys
from pathlib import Path
from turret.service.stores.sqlite.records import SqliteRecords
async def write(path, name):
    records = SqliteRecords(Path(path))
    for number in range(200):
        line = b"%s-%d\\n" % (name.encode(), number)
        found = await records.read()
        while (after := await records.swap(found, found + line)) != found + line:
            found = after
        print(line.decode(), end="", flush=True)
        await records.members(name, line, 60)
    await records.close()
asyncio.run(write(*sys.argv[1:]))
"""


@pytest.mark.process
def test_of_processes_that_swap_together_one_succeeds_at_a_time_though_one_is_killed(tmp_path: Path) -> None:
    """They also begin together, on a file that isn't there yet."""
    path = tmp_path / "record.sqlite"
    words = [[sys.executable, "-c", WRITER, str(path), name] for name in ("a", "b", "c")]
    killed, *others = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in words]
    assert killed.stdout is not None
    acknowledged = [killed.stdout.readline().strip() for _ in range(20)]
    killed.kill()
    for writer in (killed, *others):
        acknowledged += writer.communicate()[0].split()
    assert [writer.returncode for writer in others] == [0, 0]

    async def read() -> tuple[list[str], int, set[str]]:
        records = SqliteRecords(path)
        try:
            lines = (await records.read()).decode().split()
            members = {member.name for member in await records.members()}
            return lines, (await records.poll()).record, members
        finally:
            await records.close()

    lines, revision, members = asyncio.run(read())
    assert len(lines) == len(set(lines)) == revision
    assert set(acknowledged) <= set(lines)
    assert len(lines) <= len(acknowledged) + 1  # the killed one may have written one more
    assert members == {"a", "b", "c"}
