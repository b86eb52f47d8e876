"""Loading a prepared log into a store of histories, SQLite and a Redis.

The log is synthetic, with 50 events a user in the mean. Redis keeps an append-only file, synced every second.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.preparation import write_log
from benchmarks.processes import turret_cost
from tests.support.redis_server import own_redis

EVENTS, QUICK = 2_000_000, 200_000


def measure(options: Options) -> dict[str, Any]:
    """The cost of the command with both stores."""
    events = QUICK if options.quick else EVENTS
    with TemporaryDirectory(prefix="turret-history-load-") as work:
        folder = Path(work)
        write_log(folder / "log", events)
        turret_cost("data", "prepare", folder / "log", "--to", folder / "prepared")
        with own_redis(folder / "redis", appendfsync="everysec") as server:
            stores = {"sqlite": f"sqlite:///{folder}/h.sqlite", "redis": server.address}
            load = ("history", "load", "--data", folder / "prepared", "--store")
            costs = {name: {"load": turret_cost(*load, store)._asdict()} for name, store in stores.items()}
    return {"events": events, "stores": costs}


if __name__ == "__main__":
    run(measure, needs_data=False)
