"""The memory, disk and time of each part of Turret by size: the figures of `turret plan`.

Each part is measured at two sizes or more, so that its fixed cost and its growth are both known:
`python -m benchmarks.scale PART` writes `results/scale_PART.json`. Costs are processor seconds, which other
programs on the machine change less than seconds of the clock. `--work` is the folder of the data that the
parts make.

- `preparation`: logs in Parquet parts with numbers as ids, and a file of their items; memory and disk.
- `training`: processor microseconds an example of one thread, and the peak of a `turret train` of one epoch,
  by catalog, width and history; users have as many events as the tower reads, items are drawn evenly.
- `validation`: processor seconds of ranking the catalog for one user.
- `service`: export, index and service of a synthetic shop by the default experiment after one epoch.
- `requests`: users of 50 stored events, ten items; the service keeps to one processor, the load to another.
- `histories`: events with ids of 36 characters, as clients make them; the logs of both stores are rewritten
  before they count.
"""

import argparse
import asyncio
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.harness import finish, read_options, show
from benchmarks.load import Load, processors, request_costs, run_load
from benchmarks.processes import CommandCost, resident_bytes, running_service, turret_cost
from benchmarks.scale_training import folder_mb, measure_preparation, measure_training, measure_validation
from tests.support.redis_server import own_redis
from turret.data.prepared import PreparedData
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores
from turret.tower.format.manifest import read_manifest

PATH, INDEXED = "/v1/recommend", "indexed"
EVENTS_PER_USER, QUESTIONS, CONNECTIONS, ROUNDS = 60, 1_000, 16, 3
USERS, QUICK_USERS = 20_000, 1_000
SECONDS, QUICK_SECONDS = 4.0, 1.0


class Catalog(NamedTuple):
    """The items of a shop, of which those without an event are not served, and the width of their vectors."""

    items: int
    dimension: int


CATALOGS = (Catalog(100_000, 64), Catalog(1_000_000, 64), Catalog(1_000_000, 128))
QUICK_CATALOGS = (Catalog(1_000, 16),)


def shop_of(items: int, users: int, folder: Path) -> Path:
    """Prepare a shop of `items` items unless it exists; return the prepared folder."""
    target = folder / f"shop_{items}"
    if not target.exists():
        shop = folder / "shop"
        size = ("--users", users, "--items", items, "--events-per-user", EVENTS_PER_USER)
        turret_cost("data", "synth", shop, *size, "--overwrite")
        turret_cost("data", "prepare", shop, "--to", target)
        shutil.rmtree(shop)
    return target


def bundles_of(data: Path, dimension: int, folder: Path) -> tuple[Path, dict[str, CommandCost]]:
    """Train for one epoch, export and index; return the bundles' folder, and the costs of the last two."""
    run, bundles = folder / "run", folder / f"bundles_{data.name}_{dimension}"
    shutil.rmtree(bundles, ignore_errors=True)
    settings = ("--set", "training.epochs=1", "--set", f"tower.dimension={dimension}", "--overwrite")
    turret_cost("train", "--data", data, "--run", run, *settings)
    costs = {
        "export": turret_cost("export", run, "--bundles", bundles, "--version", "exact"),
        "index": turret_cost("index", bundles / "exact", "--kind", "auto", "--version", INDEXED),
    }
    turret_cost("activate", INDEXED, "--bundles", bundles)
    return bundles, costs


@contextmanager
def loaded_sqlite(data: Path) -> Iterator[str]:
    """The address of a store with the histories of a prepared folder."""
    with TemporaryDirectory(prefix="turret-scale-") as work:
        address = f"sqlite:///{work}/h.sqlite"
        turret_cost("history", "load", "--data", data, "--store", address)
        yield address


def questions(data: Path) -> tuple[str, ...]:
    """Requests of the first users for ten items."""
    vocabulary = PreparedData.open(data).users
    users = vocabulary.ids(range(min(QUESTIONS, len(vocabulary))))
    return tuple(json.dumps({"user_id": user, "k": 10}) for user in users)


def measure_requests(bundles: Path, store: str, bodies: Sequence[str], seconds: float) -> dict[str, float]:
    """Processor milliseconds of a request, and the memory of one worker."""
    service_cpu, load_cpu = processors(2)
    with running_service(bundles, 1, "--store", store) as service:
        service.keep_to(service_cpu)
        load = Load(service.url, PATH, tuple(bodies), connections=CONNECTIONS, seconds=seconds, cpu=load_cpu)
        run_load(load)
        request_ms = min(request_costs(load, [service.process.pid]) for _ in range(ROUNDS))[0]
        return {"request_ms": request_ms, "resident_mb": resident_bytes(service.process.pid) / 1e6}


def measure_catalogs(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Export, index and serve each catalog: memory with one worker and with two."""
    seconds, users = (QUICK_SECONDS, QUICK_USERS) if quick else (SECONDS, USERS)
    points = []
    for catalog in QUICK_CATALOGS if quick else CATALOGS:
        data = shop_of(catalog.items, users, folder)
        (bundles, costs), bodies = bundles_of(data, catalog.dimension, folder), questions(data)
        with loaded_sqlite(data) as store:
            one_worker = measure_requests(bundles, store, bodies, seconds)
            with running_service(bundles, 2, "--store", store) as service:
                run_load(Load(service.url, PATH, bodies, connections=32, seconds=seconds))
                two_workers = resident_bytes(service.process.pid) / 1e6
        points.append(
            {
                "items": len(PreparedData.open(data).item_ids),
                "dimension": catalog.dimension,
                **{command: costs[command]._asdict() for command in ("export", "index")},
                "kind": read_manifest(bundles / INDEXED).index.kind,
                "bundle_mb": folder_mb(bundles / INDEXED),
                "service": {"sqlite": one_worker, "two_workers": {"resident_mb": two_workers}},
            }
        )
    return points


def measure_stores(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Measure the smallest and the largest catalog, with SQLite and with a Redis.

    The bundles of `benchmarks.scale service` are used if they are there.
    """
    seconds, users = (QUICK_SECONDS, QUICK_USERS) if quick else (SECONDS, USERS)
    points = []
    for catalog in QUICK_CATALOGS if quick else (CATALOGS[0], CATALOGS[-1]):
        data = shop_of(catalog.items, users, folder)
        bundles = folder / f"bundles_{data.name}_{catalog.dimension}"
        if not (bundles / "current").exists():
            bundles_of(data, catalog.dimension, folder)
        bodies = questions(data)
        with loaded_sqlite(data) as store:
            sqlite = measure_requests(bundles, store, bodies, seconds)
        with TemporaryDirectory() as work, own_redis(Path(work), appendfsync="everysec") as server:
            turret_cost("history", "load", "--data", data, "--store", server.address)
            redis = measure_requests(bundles, server.address, bodies, seconds)
        items = len(PreparedData.open(data).item_ids)
        points.append({"items": items, "dimension": catalog.dimension, "sqlite": sqlite, "redis": redis})
    return points


STORED_FROM = 1_700_000_000_000  # milliseconds
WRITE = 2_000  # events of one call
# How many users are stored, and how many events of each.
SIZES = ((20_000, 5), (2_000, 50), (20_000, 20), (5_000, 200))
QUICK_SIZES = ((200, 5),)


async def _store(users: int, events: int, address: str) -> None:
    """Write the events in rounds over the users as time passes."""

    def event(number: int) -> Event:
        user, item = f"u{number % users:06}", number * 7919 % 1_000_000
        return Event(str(uuid.uuid4()), user, item, STORED_FROM + 1000 * number, None)

    stores = open_stores(Settings(store=address))
    try:
        for first in range(0, events, WRITE):
            numbers = range(first, min(first + WRITE, events))
            await stores.histories.append([event(number) for number in numbers])
    finally:
        await stores.close()


def measure_histories(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Measure every size in both stores, in megabytes.

    The figure of SQLite is that of its files after the store is closed; those of Redis are its memory beyond
    that when empty, and its log.
    """
    points = []
    for users, events_per_user in QUICK_SIZES if quick else SIZES:
        events = users * events_per_user
        with TemporaryDirectory() as work:
            asyncio.run(_store(users, events, f"sqlite:///{work}/h.sqlite"))
            sqlite_mb = folder_mb(Path(work))
        with TemporaryDirectory() as work, own_redis(Path(work), appendfsync="everysec") as server:
            empty = server.ask("INFO", "memory")["used_memory"]
            asyncio.run(_store(users, events, server.address))
            held = server.ask("INFO", "memory")["used_memory"] - empty
            server.ask("BGREWRITEAOF")
            while server.ask("INFO", "persistence")["aof_rewrite_in_progress"]:
                time.sleep(0.1)
            redis = {"memory_mb": held / 1e6, "disk_mb": folder_mb(Path(work))}
        points.append(
            {
                "users": users,
                "events_per_user": events_per_user,
                "events": events,
                "sqlite_mb": sqlite_mb,
                "redis": redis,
            }
        )
    return points


WORK = Path("var/benchmarks/scale")
PARTS: dict[str, Callable[[Path, bool], Any]] = {
    "preparation": measure_preparation,
    "training": measure_training,
    "validation": measure_validation,
    "service": measure_catalogs,
    "requests": measure_stores,
    "histories": measure_histories,
}


def main() -> None:
    """Measure one part."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("part", choices=list(PARTS), help="what is measured")
    more.add_argument("--work", type=Path, default=WORK, help=f"the folder of its data ({WORK})")
    options = read_options(__doc__, needs_data=False, more=more)
    part, work = options.given.part, options.given.work / ("quick" if options.quick else "")
    work.mkdir(parents=True, exist_ok=True)
    figures = {"points": PARTS[part](work, options.quick)}
    show(figures)
    finish(f"scale_{part}", options, figures)


if __name__ == "__main__":
    main()
