"""Loading a log into a store of histories, SQLite and a Redis, beside preparing and appending it.

The log is synthetic: users of 50 events, prepared from Parquet. Each store is loaded twice: the second time
nothing is new, which is what continuing after a kill costs. Then all is dumped again. Redis keeps an
append-only file, synced every second. The hundredth part of the log is also appended to the others as
prepared data, beside preparing all of it. Each step is a command with its peak of memory.
"""

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from benchmarks.harness import Options, run
from benchmarks.processes import redis_server, turret_cost
from turret.data.prepared import PreparedData

EVENTS, QUICK = 2_000_000, 200_000
EVENTS_PER_USER, EVENTS_PER_ITEM = 50, 200
START, PERIOD = 1_600_000_000, 100_000_000  # seconds


def write_log(folder: Path, events: int) -> None:
    """Write a log of so many events, and its first 99 percent and the others as two."""
    random = np.random.default_rng(0)
    columns = {
        "user_id": random.integers(0, events // EVENTS_PER_USER, events),
        "item_id": random.integers(0, events // EVENTS_PER_ITEM, events),
        "timestamp": random.integers(START, START + PERIOD, events),
    }
    log, first = pl.DataFrame(columns), events - events // 100
    for name, frame in (("log", log), ("before", log[:first]), ("added", log[first:])):
        frame.write_parquet(folder / f"{name}.parquet")


def store(address: str, folder: Path, events: int) -> dict[str, Any]:
    """Load, load again and dump, and check what is stored."""
    dumped = folder / "dump.parquet"
    load = ("history", "load", "--data", folder / "prepared", "--store", address)
    dump = ("history", "dump", "--to", dumped, "--store", address)
    costs = {name: turret_cost(*words) for name, words in (("load", load), ("again", load), ("dump", dump))}
    if (count := pl.scan_parquet(dumped).select(pl.len()).collect().item()) != events:
        raise SystemExit(f"the store has {count:,} of {events:,} events")
    dumped.unlink()
    return {name: {**asdict(one), "events_per_second": events / one.seconds} for name, one in costs.items()}


def growth(folder: Path) -> dict[str, Any]:
    """Prepare the whole log, and append its end to the rest, which have to be the same."""
    prepared, grown = folder / "prepared", folder / "grown"
    turret_cost("data", "prepare", folder / "before.parquet", "--to", grown)
    costs = {
        "prepare": turret_cost("data", "prepare", folder / "log.parquet", "--to", prepared),
        "append": turret_cost("data", "append", folder / "added.parquet", "--to", grown),
    }
    if PreparedData.open(prepared).fingerprint != PreparedData.open(grown).fingerprint:
        raise SystemExit("appending gives other data than preparing everything; nothing is compared")
    return {name: asdict(one) for name, one in costs.items()}


def measure(options: Options) -> dict[str, Any]:
    """Measure both stores."""
    events = QUICK if options.quick else EVENTS
    with TemporaryDirectory(prefix="turret-history-load-") as work:
        folder = Path(work)
        write_log(folder, events)
        grown = growth(folder)
        stores = {"sqlite": store(f"sqlite:///{folder}/h.sqlite", folder, events)}
        with redis_server(folder) as address:
            if address is not None:
                stores["redis"] = store(address, folder, events)
    rates = {
        f"{name}_{step}_events_per_second": cost["events_per_second"]
        for name, steps in stores.items()
        for step, cost in steps.items()
    }
    ratio = grown["append"]["seconds"] / grown["prepare"]["seconds"]
    return {**rates, "append_over_prepare": ratio, "events": events, "stores": stores, "growth": grown}


if __name__ == "__main__":
    run(measure, needs_data=False)
