"""What each part of Turret holds and takes by size: the figures of `turret plan`.

Each part is measured at two sizes or more, so that what it always takes and what grows are both known:
`python -m benchmarks.scale PART` writes `results/scale_PART.json`. Costs are processor seconds, which other
programs on the machine change less than seconds of the clock. `--work` is the folder of the data that they
make.

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
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import finish, read_options, show
from benchmarks.load import Load, processors, request_costs, run_load
from benchmarks.processes import (
    CommandCost,
    resident_bytes,
    running_service,
    turret_cost,
)
from benchmarks.scale_training import folder_mb, measure_preparation, measure_training, measure_validation
from tests.support.redis_server import own_redis
from turret.data.prepared import PreparedData
from turret.service.settings import Settings
from turret.service.stores.contract import Event
from turret.service.stores.registry import open_stores
from turret.tower.format.manifest import read_manifest

PATH, INDEXED = "/v1/recommend", "indexed"
USERS, QUICK_USERS = 20_000, 1_000
EVENTS_PER_USER = 60
QUESTIONS, CONNECTIONS = 1_000, 16
SECONDS, QUICK_SECONDS, ROUNDS = 4.0, 1.0, 3


@dataclass(frozen=True)
class Catalog:
    """The items of a shop, of which those without an event are not served, and the width of their vectors."""

    items: int
    dimension: int


CATALOGS = (Catalog(100_000, 64), Catalog(1_000_000, 64), Catalog(1_000_000, 128))
QUICK_CATALOGS = (Catalog(1_000, 16),)


def prepared_shop(items: int, folder: Path, users: int = USERS) -> Path:
    """Prepare a shop of so many items, or find it; returns the prepared folder."""
    target = folder / f"shop_{items}"
    if not target.exists():
        shop = folder / "shop"
        size = ("--users", users, "--items", items, "--events-per-user", EVENTS_PER_USER)
        turret_cost("data", "synth", shop, *size, "--overwrite")
        turret_cost("data", "prepare", shop, "--to", target)
        shutil.rmtree(shop)
    return target


def bundles_of(catalog: Catalog, data: Path, folder: Path) -> tuple[Path, CommandCost, CommandCost]:
    """Train, export and index; returns the folder of the bundles and the costs of both last commands."""
    run, bundles = folder / "run", folder / f"bundles_{catalog.items}_{catalog.dimension}"
    shutil.rmtree(bundles, ignore_errors=True)
    width = f"tower.dimension={catalog.dimension}"
    settings = ("--set", "training.epochs=1", "--set", width, "--overwrite")
    turret_cost("train", "--data", data, "--run", run, *settings)
    exported = turret_cost("export", run, "--bundles", bundles, "--version", "exact")
    indexed = turret_cost("index", bundles / "exact", "--kind", "auto", "--version", INDEXED)
    turret_cost("activate", INDEXED, "--bundles", bundles)
    return bundles, exported, indexed


def measure_catalog(catalog: Catalog, folder: Path, quick: bool) -> dict[str, Any]:
    """Export, index and serve one catalog."""
    data = prepared_shop(catalog.items, folder, QUICK_USERS if quick else USERS)
    bundles, exported, indexed = bundles_of(catalog, data, folder)
    return {
        "items": len(PreparedData.open(data).item_ids),
        "dimension": catalog.dimension,
        "export": asdict(exported),
        "index": asdict(indexed),
        "kind": read_manifest(bundles / INDEXED).index.kind,
        "bundle_mb": folder_mb(bundles / INDEXED),
        "service": measure_service(bundles, data, QUICK_SECONDS if quick else SECONDS),
    }


def measure_service(bundles: Path, data: Path, seconds: float) -> dict[str, Any]:
    """Memory with one worker and with two."""
    bodies = questions(data)
    with tempfile.TemporaryDirectory(prefix="turret-scale-") as work:
        address = f"sqlite:///{work}/h.sqlite"
        turret_cost("history", "load", "--data", data, "--store", address)
        one = measure_requests(bundles, address, bodies, seconds)
        with running_service(bundles, 2, "--store", address) as service:
            run_load(Load(service.url, PATH, bodies, connections=32, seconds=seconds))
            two = resident_bytes(service.process.pid) / 1e6
    return {"sqlite": one, "two_workers": {"resident_mb": two}}


def questions(data: Path, count: int = QUESTIONS) -> tuple[str, ...]:
    """Requests of the first users for ten items."""
    vocabulary = PreparedData.open(data).users
    users = vocabulary.ids(range(min(count, len(vocabulary))))
    return tuple(json.dumps({"user_id": user, "k": 10}) for user in users)


def measure_requests(bundles: Path, store: str, bodies: Sequence[str], seconds: float) -> dict[str, float]:
    """Processor milliseconds of a request, and the memory of one worker."""
    own, other = processors(2)
    with running_service(bundles, 1, "--store", store) as service:
        service.keep_to(own)
        load = Load(service.url, PATH, tuple(bodies), connections=CONNECTIONS, seconds=seconds, cpu=other)
        run_load(load)
        ((request_ms,), *_) = sorted(request_costs(load, [service.process.pid]) for _ in range(ROUNDS))
        resident = resident_bytes(service.process.pid) / 1e6
    return {"request_ms": request_ms, "resident_mb": resident}


def measure_catalogs(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """All catalogs, one after the other."""
    return [measure_catalog(one, folder, quick) for one in (QUICK_CATALOGS if quick else CATALOGS)]


def measure_stores(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The smallest and the largest catalog, with SQLite and with a Redis.

    The bundles of `benchmarks.scale service` are used if they are there.
    """
    seconds, users = (QUICK_SECONDS, QUICK_USERS) if quick else (SECONDS, USERS)
    catalogs = QUICK_CATALOGS if quick else (CATALOGS[0], CATALOGS[-1])
    points = []
    for catalog in catalogs:
        data = prepared_shop(catalog.items, folder, users)
        bundles = folder / f"bundles_{catalog.items}_{catalog.dimension}"
        if not (bundles / "current").exists():
            bundles_of(catalog, data, folder)
        items = len(PreparedData.open(data).item_ids)
        point = {"items": items, "dimension": catalog.dimension}
        points.append(point | measure_both(bundles, data, seconds))
    return points


def measure_both(bundles: Path, data: Path, seconds: float) -> dict[str, Any]:
    """The costs of requests with each store."""
    bodies, figures = questions(data), {}
    with tempfile.TemporaryDirectory(prefix="turret-scale-") as work:
        address = f"sqlite:///{work}/h.sqlite"
        turret_cost("history", "load", "--data", data, "--store", address)
        figures["sqlite"] = measure_requests(bundles, address, bodies, seconds)
        with own_redis(Path(work), appendfsync="everysec") as server:
            turret_cost("history", "load", "--data", data, "--store", server.address)
            figures["redis"] = measure_requests(bundles, server.address, bodies, seconds)
    return figures


STORED_FROM = 1_700_000_000_000  # milliseconds
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
QUICK_SIZES = (Stored(200, 5),)


def made_events(size: Stored) -> Iterator[list[Event]]:
    """The events in portions of one write, in rounds over the users as time passes."""
    portion: list[Event] = []
    for number in range(size.events):
        user, item = f"u{number % size.users:06}", number * 7919 % 1_000_000
        portion.append(Event(str(uuid.uuid4()), user, item, STORED_FROM + 1000 * number, None))
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


def measure_redis(size: Stored) -> dict[str, float]:
    """Megabytes that a Redis holds in memory beside those when empty, and of its log."""
    with (
        TemporaryDirectory(prefix="turret-scale-") as work,
        own_redis(Path(work), appendfsync="everysec") as server,
    ):
        empty = server.ask("INFO", "memory")["used_memory"]
        asyncio.run(_store(size, server.address))
        held = server.ask("INFO", "memory")["used_memory"] - empty
        server.ask("BGREWRITEAOF")
        while server.ask("INFO", "persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)
        return {"memory_mb": held / 1e6, "disk_mb": folder_mb(Path(work))}


def measure_histories(quick: bool) -> list[dict[str, Any]]:
    """Every size in both stores."""
    return [
        asdict(size)
        | {"events": size.events, "sqlite_mb": measure_sqlite(size), "redis": measure_redis(size)}
        for size in (QUICK_SIZES if quick else SIZES)
    ]


WORK = Path("var/benchmarks/scale")
PARTS: dict[str, Callable[[Path, bool], Any]] = {
    "preparation": measure_preparation,
    "training": measure_training,
    "validation": measure_validation,
    "service": measure_catalogs,
    "requests": measure_stores,
    "histories": lambda folder, quick: measure_histories(quick),
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
