"""Preparing a log by Spark with two executors, beside Polars on the same machine, by the number of events.

Logs in Parquet parts with numbers as ids, as `benchmarks.preparation` writes them. Both sides take turns;
each turn is the whole command with the start of Spark, in processes of its own. Spark has two executors of
one core and 1 GB, processes of this machine. `spark_over_polars` is the ratio of the medians of the log of
`RATIO_EVENTS`, and `driver_mb` the most memory that the command's own process takes; its Java is beside it.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Options, machine, run
from benchmarks.plan_figures import fit
from benchmarks.preparation import write_log
from turret.data.manifest import DataManifest

POLARS, SPARK = "Polars", "Spark"
ENGINES: dict[str, tuple[str, ...]] = {POLARS: (), SPARK: ("--engine", "local-cluster[2,1,2048]")}
# Events of a log, and the turns that each side takes.
SIZES = ((1_000_000, 3), (3_000_000, 2), (10_000_000, 3), (30_000_000, 1))
QUICK_SIZES = ((20_000, 1), (60_000, 1))
RATIO_EVENTS = 10_000_000
_LOOK_SECONDS = 0.1
_SPARK = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}


def turn(*words: object) -> dict[str, float]:
    """Run a command of Turret; return its seconds, and the peaks of its process and of the Java it starts.

    Executors are processes of that Java, and not counted. Raises SystemExit for a command that fails.
    """
    begun = time.perf_counter()
    command = [sys.executable, "-m", "turret", *map(str, words)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | _SPARK
    )
    python = java = 0.0
    while process.poll() is None:
        python = max(python, _peak_mb(process.pid))
        java = max([java, *map(_peak_mb, _children(process.pid))])
        time.sleep(_LOOK_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {"seconds": time.perf_counter() - begun, "python_mb": python, "java_mb": java}


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:  # the process has just ended
        return 0.0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) * 1024 / 1e6 if match else 0.0


def _children(pid: int) -> list[int]:
    children = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += map(int, task.read_text().split())
        except OSError:
            continue
    return children


def one_log(events: int, rounds: int, work: Path) -> dict[str, Any]:
    """Prepare one log both ways in turns; return the cost of each turn. The outputs have to be equal."""
    source = work / "log"
    write_log(source, events)
    turns: dict[str, list[dict[str, float]]] = {side: [] for side in ENGINES}
    for _ in range(rounds):
        for side, engine in ENGINES.items():
            turns[side].append(turn("data", "prepare", source, "--to", work / side, "--overwrite", *engine))
            print(events, side, turns[side][-1], file=sys.stderr, flush=True)
    prints = {side: DataManifest.load(work / side).fingerprint for side in ENGINES}
    if prints[POLARS] != prints[SPARK]:
        raise SystemExit(f"the outputs of {events:,} events differ: {prints}")
    users = DataManifest.load(work / SPARK).counts.users
    shutil.rmtree(source)
    return {
        "events": events,
        "users": users,
        "seconds": {side: [cost["seconds"] for cost in costs] for side, costs in turns.items()},
        "python_mb": {side: max(cost["python_mb"] for cost in costs) for side, costs in turns.items()},
        "java_mb": max(cost["java_mb"] for cost in turns[SPARK]),
    }


def figures(logs: list[dict[str, Any]]) -> dict[str, Any]:
    """The ratio, the driver's memory, and the line through the medians of each side."""
    medians = {side: [statistics.median(log["seconds"][side]) for log in logs] for side in ENGINES}
    rows = [{"base": 1.0, "events": log["events"]} for log in logs]
    lines = {side: fit(rows, medians[side], ("base", "events")) for side in ENGINES}
    of_ratio = min(logs, key=lambda log: abs(log["events"] - RATIO_EVENTS))
    spark, polars = (statistics.median(of_ratio["seconds"][side]) for side in (SPARK, POLARS))
    slopes = {side: line["events"] for side, line in lines.items()}
    return {
        "spark_over_polars": spark / polars,
        "driver_mb": max(log["python_mb"][SPARK] for log in logs),
        "cores_to_match": slopes[SPARK] / slopes[POLARS] * machine()["cores"],
        "start_seconds": {side: line["base"] for side, line in lines.items()},
        "microseconds_an_event": {side: 1e6 * slope for side, slope in slopes.items()},
        "logs": logs,
    }


def measure(options: Options) -> dict[str, Any]:
    """Measure every log, and compute the figures."""
    with TemporaryDirectory() as work:
        return figures(
            [
                one_log(events, rounds, Path(work))
                for events, rounds in (QUICK_SIZES if options.quick else SIZES)
            ]
        )


if __name__ == "__main__":
    run(measure, needs_data=False)
