"""How far plans are from a run that is not among their figures.

A synthetic shop of other sizes and another dimension than those that the figures were fitted to is prepared,
trained for one epoch, exported, indexed and served. Times are processor seconds, and of training those with
one thread. The result has the measured values in bytes and seconds, by the part and the amount of a plan.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.processes import turret_cost
from benchmarks.scale import (
    EVENTS_PER_USER,
    INDEXED,
    WORK,
    bundles_of,
    loaded_sqlite,
    measure_requests,
    questions,
)
from benchmarks.scale_training import folder_mb, watched
from turret.data.prepared import PreparedData
from turret.plan import EXPERIMENT, Figures, Machine, PlanRequest, experiment_defaults, make_plan

USERS, ITEMS, DIMENSION = 30_000, 300_000, 96
QUICK_USERS, QUICK_ITEMS = 500, 1_000
MB = 1e6


def measure(options: Options) -> dict[str, Any]:
    """Run every part."""
    work, quick = options.given.work, options.quick
    shutil.rmtree(work, ignore_errors=True)
    data, shop = work / "preparing" / "prepared", work / "shop"
    data.parent.mkdir(parents=True)
    users, items = (QUICK_USERS, QUICK_ITEMS) if quick else (USERS, ITEMS)
    size = ("--users", users, "--items", items, "--events-per-user", EVENTS_PER_USER)
    turret_cost("data", "synth", shop, *size)
    with watched(data.parent) as most:
        prepared = turret_cost("data", "prepare", shop, "--to", data)
    opened = PreparedData.open(data)
    bundles, costs = bundles_of(data, DIMENSION, work, threads=1)
    with loaded_sqlite(data) as store:
        stored = folder_mb(Path(store.removeprefix("sqlite://")).parent)
        served = measure_requests(bundles, store, questions(data), 1.0 if quick else 4.0)
    exported, indexed = costs["export"], costs["index"]
    return {
        "sizes": {
            "users": len(opened.users),
            "items": len(opened.item_ids),
            "events": len(opened.event_items),
            "dimension": DIMENSION,
        },
        "measured": {
            "preparation": {
                "memory": MB * prepared.peak_mb,
                "disk": MB * max(most[-1], folder_mb(data)),
            },
            "training": {
                "memory": MB * costs["train"].peak_mb,
                "seconds": costs["train"].processor_seconds,
                "disk": MB * folder_mb(work / "run"),
            },
            "export and index": {
                "memory": MB * max(exported.peak_mb, indexed.peak_mb),
                "seconds": exported.processor_seconds + indexed.processor_seconds,
                "disk": MB * folder_mb(bundles / INDEXED),
            },
            "histories in sqlite": {"disk": MB * stored},
        },
        "service_memory": MB * served["resident_mb"],
        "request_seconds": served["request_ms"] / 1e3,
    }


def ratios(result: Mapping[str, Any], figures: Figures) -> list[float]:
    """Each measured value over its plan, for one core."""
    request = PlanRequest(
        **result["sizes"],
        requests=1.0,
        machine=Machine(1, 64e9, 1e12),
        history=int(experiment_defaults(EXPERIMENT)["history"]),
        experiment=EXPERIMENT,
        epochs=1,
        hours=8.0,
    )
    parts, sizes = make_plan(request, figures).parts, request.sizes()
    return [
        result["request_seconds"] / figures.at("service.sqlite.request_seconds", sizes),
        result["service_memory"] / figures.at("service.memory", sizes),
        *(
            value / getattr(parts[part], amount)
            for part, amounts in result["measured"].items()
            for amount, value in amounts.items()
        ),
    ]


if __name__ == "__main__":
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--work", type=Path, default=WORK / "check", help="the folder of its data")
    run(measure, needs_data=False, more=folder)
