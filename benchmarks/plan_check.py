"""How far plans are from a run that is not among their figures.

A synthetic shop of other sizes and another dimension than those that the figures were fitted to is prepared,
trained for one epoch, exported, indexed and served. Times are processor seconds, and of training those with
one thread. The result has the measured values; `compared` sets them beside the plan of the current figures.
"""

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Options, run
from benchmarks.processes import CommandCost, turret_cost
from benchmarks.scale import WORK, measure_requests, questions
from benchmarks.scale_training import folder_mb, watched
from turret.data.prepared import PreparedData
from turret.plan import EXPERIMENT, Figures, Machine, Planner, PlanRequest, experiment_defaults

USERS, ITEMS, EVENTS_PER_USER, DIMENSION = 30_000, 300_000, 60, 96
QUICK_USERS, QUICK_ITEMS = 500, 1_000
MB = 1e6


def measure(options: Options) -> dict[str, Any]:
    """Run every part."""
    work, quick = options.given.work, options.quick
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    data, measured = _prepare(work, quick)
    opened = PreparedData.open(data)
    sizes = {
        "users": len(opened.users),
        "items": len(opened.item_ids),
        "events": len(opened.event_items),
        "dimension": DIMENSION,
    }
    cost, trained_run = _train(data, work)
    trained = {
        "training: memory": cost.peak_mb * MB,
        "training: seconds": cost.processor_seconds,
        "training: disk": folder_mb(trained_run) * MB,
    }
    return {"sizes": sizes, "measured": measured | trained | _served(trained_run, data, work, quick)}


@dataclass(frozen=True)
class Compared:
    """A planned and a measured value, in bytes or seconds."""

    name: str
    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over planned."""
        return self.measured / self.planned


def compared(result: dict[str, Any], figures: Figures) -> list[Compared]:
    """Each measured value beside its plan, for one core."""
    request = PlanRequest(
        **result["sizes"],
        requests=1.0,
        machine=Machine(1, 64e9, 1e12),
        history=int(experiment_defaults(EXPERIMENT)["history"]),
        experiment=EXPERIMENT,
        epochs=1,
        hours=8.0,
    )
    planned = planned_values(request, figures)
    return [Compared(name, planned[name], value) for name, value in result["measured"].items()]


def planned_values(request: PlanRequest, figures: Figures) -> dict[str, float]:
    """The planned value of each measured one."""
    planner = Planner(request, figures)
    parts = planner.parts
    preparation, training, index = parts["preparation"], parts["training"], parts["export and index"]
    amounts = {
        "preparation: memory": preparation.memory,
        "preparation: disk": preparation.disk,
        "preparation: disk for a while": preparation.passing_disk,
        "training: memory": training.memory,
        "training: seconds": training.seconds,
        "training: disk": training.disk,
        "export and index: memory": index.memory,
        "export and index: seconds": index.seconds,
        "bundle: disk": index.disk,
        "service: memory": parts["service"].memory,
        "service: seconds of a request": planner.at("service.sqlite.request_seconds"),
        "histories in SQLite: disk": parts["histories"].disk,
    }
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _prepare(work: Path, quick: bool) -> tuple[Path, dict[str, float]]:
    shop, target = work / "shop", work / "preparing" / "prepared"
    users, items = (QUICK_USERS, QUICK_ITEMS) if quick else (USERS, ITEMS)
    turret_cost(
        "data", "synth", shop, "--users", users, "--items", items, "--events-per-user", EVENTS_PER_USER
    )
    target.parent.mkdir()
    with watched(target.parent) as most:
        cost = turret_cost("data", "prepare", shop, "--to", target)
    disk = folder_mb(target)
    return target, {
        "preparation: memory": cost.peak_mb * MB,
        "preparation: disk": disk * MB,
        "preparation: disk for a while": max(most[-1], disk) * MB,
    }


def _train(data: Path, work: Path) -> tuple[CommandCost, Path]:
    run = work / "run"
    settings = ("--set", "training.epochs=1", "--set", f"tower.dimension={DIMENSION}")
    words = ("train", "--data", data, "--run", run, "--experiment", EXPERIMENT, *settings)
    return turret_cost(*words, threads=1), run


def _served(run: Path, data: Path, work: Path, quick: bool) -> dict[str, float]:
    bundles = work / "bundles"
    exported = turret_cost("export", run, "--bundles", bundles, "--version", "exact")
    indexed = turret_cost("index", bundles / "exact", "--kind", "auto", "--version", "indexed")
    turret_cost("activate", "indexed", "--bundles", bundles)
    with TemporaryDirectory(prefix="turret-plan-") as folder:
        address = f"sqlite:///{folder}/h.sqlite"
        turret_cost("history", "load", "--data", data, "--store", address)
        stored = folder_mb(Path(folder))
        served = measure_requests(bundles, address, questions(data), 1.0 if quick else 4.0)
    return {
        "export and index: memory": max(exported.peak_mb, indexed.peak_mb) * MB,
        "export and index: seconds": exported.processor_seconds + indexed.processor_seconds,
        "bundle: disk": folder_mb(bundles / "indexed") * MB,
        "service: memory": served["resident_mb"] * MB,
        "service: seconds of a request": served["request_ms"] / 1e3,
        "histories in SQLite: disk": stored * MB,
    }


if __name__ == "__main__":
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--work", type=Path, default=WORK / "check", help="the folder of its data")
    run(measure, needs_data=False, more=folder)
