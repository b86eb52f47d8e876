"""The bytes of stored histories, by users and events: files of SQLite, memory and files of a Redis.

Events have ids of 36 characters, as clients make them, and items are numbers. The stores get them by the
calls that `POST /v1/events` makes; SQLite's write-ahead log and Redis's log are rewritten before they count.
"""

import asyncio
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.processes import redis_server
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores

START = 1_700_000_000_000  # milliseconds
WRITE = 2_000  # events of one call


@dataclass(frozen=True)
class Stored:
    """How many users are stored, and how many events of each."""

    users: int
    events_per_user: int

    @property
    def events(self) -> int:
        """All events."""
        return self.users * self.events_per_user


SIZES = (Stored(20_000, 5), Stored(2_000, 50), Stored(20_000, 20), Stored(5_000, 200))
QUICK = (Stored(200, 5),)


def made_events(size: Stored) -> Iterator[list[Event]]:
    """The events in portions of one write, in rounds over the users as time passes."""
    portion: list[Event] = []
    for number in range(size.events):
        user, item = f"u{number % size.users:06}", number * 7919 % 1_000_000
        portion.append(Event(str(uuid.uuid4()), user, item, START + 1000 * number, None))
        if len(portion) == WRITE:
            yield portion
            portion = []
    if portion:
        yield portion


async def _store(size: Stored, address: str) -> None:
    stores = open_stores(Settings(store=address))
    try:
        for portion in made_events(size):
            await stores.histories.append(portion)
    finally:
        await stores.close()


def measure_sqlite(size: Stored) -> float:
    """Megabytes of the files after the store is closed."""
    with TemporaryDirectory(prefix="turret-scale-") as work:
        asyncio.run(_store(size, f"sqlite:///{work}/h.sqlite"))
        return sum(path.stat().st_size for path in Path(work).glob("h.sqlite*")) / 1e6


def measure_redis(size: Stored) -> dict[str, float] | None:
    """Megabytes that a Redis holds in memory beside those when empty, and of its log; None without Redis."""
    from redis import Redis

    with TemporaryDirectory(prefix="turret-scale-") as work, redis_server(Path(work)) as address:
        if address is None:
            return None
        with Redis.from_url(address) as client:
            empty = _memory(client)
            asyncio.run(_store(size, address))
            held = _memory(client) - empty
            client.bgrewriteaof()
            while _persistence(client)["aof_rewrite_in_progress"]:
                time.sleep(0.1)
            log = sum(path.stat().st_size for path in Path(work).rglob("*") if path.is_file())
        return {"memory_mb": held / 1e6, "disk_mb": log / 1e6}


def _memory(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


def _persistence(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.info("persistence")
    return found


def measure_histories(quick: bool) -> list[dict[str, Any]]:
    """Every size in both stores."""
    return [
        asdict(size)
        | {"events": size.events, "sqlite_mb": measure_sqlite(size), "redis": measure_redis(size)}
        for size in (QUICK if quick else SIZES)
    ]
