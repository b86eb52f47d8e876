"""Loading a prepared log into a store of histories, SQLite and a Redis.

The log is synthetic, with 50 events a user in the mean. Each store is loaded twice: the second time nothing
is new, as after a kill at the end of a load. Redis keeps an append-only file, synced every second.
Each step is a command with its peak of memory.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.preparation import write_log
from benchmarks.processes import turret_cost
from tests.support.redis_server import own_redis

EVENTS, QUICK = 2_000_000, 200_000


def store(address: str, prepared: Path, events: int) -> dict[str, Any]:
    """Load, and load again."""
    load = ("history", "load", "--data", prepared, "--store", address)
    costs = {name: turret_cost(*load) for name in ("load", "again")}
    return {name: {**one._asdict(), "events_per_second": events / one.seconds} for name, one in costs.items()}


def measure(options: Options) -> dict[str, Any]:
    """Measure both stores."""
    events = QUICK if options.quick else EVENTS
    with TemporaryDirectory(prefix="turret-history-load-") as work:
        folder = Path(work)
        write_log(folder / "log", events)
        turret_cost("data", "prepare", folder / "log", "--to", folder / "prepared")
        stores = {"sqlite": store(f"sqlite:///{folder}/h.sqlite", folder / "prepared", events)}
        with own_redis(folder / "redis", appendfsync="everysec") as server:
            stores["redis"] = store(server.address, folder / "prepared", events)
    return {"events": events, "stores": stores}


if __name__ == "__main__":
    run(measure, needs_data=False)
