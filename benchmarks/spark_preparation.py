"""Preparing a log by Spark, beside Polars on the same machine, by the number of events.

Logs in Parquet parts with numbers as ids, as `benchmarks.preparation` writes them. Both sides take turns;
each turn is the whole command, in processes of its own. Two cores can't show how a cluster scales: from the
times of an event follows how many cores match this machine, as if Spark lost nothing between machines.
"""

import shutil
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Options, machine, run
from benchmarks.plan_figures import fit
from benchmarks.preparation import write_log
from benchmarks.processes import turret_cost
from turret.data.manifest import DataManifest

POLARS, SPARK = "Polars", "Spark"
ENGINES: dict[str, tuple[str, ...]] = {POLARS: (), SPARK: ("--engine", "local")}
EVENTS, QUICK_EVENTS = (1_000_000, 3_000_000, 10_000_000), (20_000, 60_000)
ROUNDS, QUICK_ROUNDS = 3, 1


def one_log(events: int, rounds: int, work: Path) -> dict[str, Any]:
    """Prepare one log both ways in turns; return the seconds of each turn. The outputs have to be equal."""
    source = work / "log"
    write_log(source, events)
    seconds: dict[str, list[float]] = {side: [] for side in ENGINES}
    for _ in range(rounds):
        for side, engine in ENGINES.items():
            arguments = ("data", "prepare", source, "--to", work / side, "--overwrite", *engine)
            seconds[side].append(turret_cost(*arguments).seconds)
    prints = {side: DataManifest.load(work / side).fingerprint for side in ENGINES}
    if prints[POLARS] != prints[SPARK]:
        raise SystemExit(f"the outputs of {events:,} events differ: {prints}")
    shutil.rmtree(source)
    return {"events": events, "seconds": seconds}


def figures(logs: list[dict[str, Any]]) -> dict[str, Any]:
    """The line through the medians of each side, and the cores of Spark that match this machine."""
    medians = {side: [statistics.median(log["seconds"][side]) for log in logs] for side in ENGINES}
    rows = [{"base": 1.0, "events": log["events"]} for log in logs]
    lines = {side: fit(rows, medians[side], ("base", "events")) for side in ENGINES}
    slopes = {side: line["events"] for side, line in lines.items()}
    return {
        "cores_to_match": slopes[SPARK] / slopes[POLARS] * machine()["cores"],
        "start_seconds": {side: line["base"] for side, line in lines.items()},
        "microseconds_an_event": {side: 1e6 * slope for side, slope in slopes.items()},
        "logs": logs,
    }


def measure(options: Options) -> dict[str, Any]:
    """Measure every log, and compute the figures."""
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    with TemporaryDirectory() as work:
        return figures(
            [one_log(events, rounds, Path(work)) for events in (QUICK_EVENTS if options.quick else EVENTS)]
        )


if __name__ == "__main__":
    run(measure, needs_data=False)
