"""What an export, its index and its service cost by catalog and width.

A synthetic shop with titles, genres and prices; the model is that of the default experiment after one epoch.
The memory of the service is measured with its histories in SQLite.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.load import Load, processors, run_load
from benchmarks.processes import CommandCost, processor_seconds, resident_bytes, running_service, turret_cost
from benchmarks.scale_training import folder_mb
from turret.data.prepared import PreparedData
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
        "files_mb": _files(bundles / INDEXED),
        "bundle_mb": folder_mb(bundles / INDEXED),
        "service": measure_service(bundles, data, QUICK_SECONDS if quick else SECONDS),
    }


def _files(bundle: Path) -> dict[str, float]:
    return {path.name: path.stat().st_size / 1e6 for path in sorted(bundle.iterdir()) if path.is_file()}


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


def measure_requests(
    bundles: Path, store: str, bodies: Sequence[str], seconds: float, redis: int = 0
) -> dict[str, float]:
    """Processor milliseconds of a request, in the service and in its Redis, and the memory of one worker."""
    own, other = processors(2)
    with running_service(bundles, 1, "--store", store) as service:
        service.keep_to(own)
        load = Load(service.url, PATH, tuple(bodies), connections=CONNECTIONS, seconds=seconds, cpu=other)
        run_load(load)
        costs = [_cost(load, service.process.pid, redis) for _ in range(ROUNDS)]
        resident = resident_bytes(service.process.pid) / 1e6
    return {name: min(cost[name] for cost in costs) for name in costs[0]} | {"resident_mb": resident}


def _cost(load: Load, service: int, redis: int) -> dict[str, float]:
    def used() -> tuple[float, float]:
        return processor_seconds(service), processor_seconds(redis) if redis else 0.0

    before = used()
    outcome = run_load(load)
    after = used()
    if not outcome.good.all():
        raise RuntimeError(f"{int((~outcome.good).sum())} requests were not answered with 200")
    own, other = (1e3 * (b - a) / len(outcome.sent) for a, b in zip(before, after, strict=True))
    return {"request_ms": own, "redis_ms": other}


def measure_catalogs(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """All catalogs, one after the other."""
    return [measure_catalog(one, folder, quick) for one in (QUICK_CATALOGS if quick else CATALOGS)]
