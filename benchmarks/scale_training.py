"""What training costs by catalog, width and history: processor time of an example, and memory of a run.

Users of equally many events, as many as the tower reads; items are drawn evenly. `steps`: processor
microseconds an example of one thread, and the most examples/s of a turn. `runs`: the peak of a whole
`turret train` of one epoch with its validation, and the bytes of its folder.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.processes import turret_cost

# Of a large catalog the transformer's full softmax would be slow, as its experiment says.
SAMPLED = 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=1024}}'
EXPERIMENTS: dict[str, tuple[str, ...]] = {"youtubednn": (), "transformer": (SAMPLED,)}
EVENTS = 300_000
# Memory does not depend on their number, and a ranking of a million items takes long.
VALIDATED = "training.validation_users=1000"
ONE_DAY = 86_400


@dataclass(frozen=True)
class Shape:
    """The sizes that a training depends on: rows of the item table, their width, events of a history."""

    items: int
    dimension: int
    history: int


STEPS = (Shape(20_000, 64, 50), Shape(20_000, 128, 50), Shape(20_000, 64, 200), Shape(20_000, 128, 200))
RUNS = (*STEPS, Shape(1_000_000, 64, 50), Shape(1_000_000, 128, 50))
# With as many users as take some seconds.
VALIDATIONS = (
    (Shape(20_000, 64, 50), 4096),
    (Shape(200_000, 64, 50), 512),
    (Shape(1_000_000, 64, 50), 64),
    (Shape(1_000_000, 128, 50), 64),
)
QUICK_STEPS = (Shape(2_000, 16, 10),)
QUICK_VALIDATIONS = ((Shape(2_000, 16, 10), 16),)


def log_of(shape: Shape, folder: Path, least_events: int = EVENTS) -> Path:
    """Prepare a log in which every item occurs, or find it; returns the prepared folder."""
    target = folder / f"items_{shape.items}_history_{shape.history}"
    if target.exists():
        return target
    users = ceil(max(least_events, shape.items) / shape.history)
    events = users * shape.history
    random = np.random.default_rng(0)
    items = np.concatenate([np.arange(shape.items), random.integers(0, shape.items, events)])[:events]
    log = {
        "user_id": np.repeat(np.arange(users), shape.history),
        "item_id": random.permutation(items),
        "timestamp": ONE_DAY * np.tile(np.arange(shape.history), users) + random.integers(0, ONE_DAY),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(log).write_parquet(folder / "log.parquet")
    turret_cost("data", "prepare", folder / "log.parquet", "--to", target)
    return target


def changes_of(experiment: str, shape: Shape) -> list[str]:
    """The settings of the experiment for that shape."""
    return [
        f"tower.dimension={shape.dimension}",
        f"tower.user.history_length={shape.history}",
        *EXPERIMENTS[experiment],
    ]


def measure_steps(experiment: str, shape: Shape, folder: Path) -> dict[str, float]:
    """The cost of steps in one thread."""
    words = [log_of(shape, folder), folder / "run", experiment, *changes_of(experiment, shape)]
    command = [sys.executable, "-m", "benchmarks.scale_steps", *map(str, words)]
    # As `turret train` sets it: threads that spin would count.
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    taken: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return taken


def measure_run(experiment: str, shape: Shape, folder: Path) -> dict[str, float]:
    """The peak of `turret train` for one epoch, and the bytes of what it writes."""
    run = folder / "run"
    words: list[object] = ["train", "--data", log_of(shape, folder), "--run", run, "--overwrite"]
    for change in ("training.epochs=1", VALIDATED, *changes_of(experiment, shape)):
        words += ["--set", change]
    cost = turret_cost(*words, "--experiment", experiment)
    return asdict(cost) | {"run_mb": folder_mb(run)}


def measure_validation(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Processor seconds of one thread for a user of the validation, by catalog and width."""
    points = []
    for shape, users in QUICK_VALIDATIONS if quick else VALIDATIONS:
        words = [log_of(shape, folder), folder / "ranked", shape.dimension, users]
        command = [sys.executable, "-m", "benchmarks.scale_validation", *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        points.append(asdict(shape) | json.loads(done.stdout.splitlines()[-1]))
    return points


def folder_mb(folder: Path) -> float:
    """Megabytes (10^6 bytes) of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure_training(folder: Path, quick: bool) -> dict[str, Any]:
    """All points, by experiment."""
    steps_at, runs_at = (QUICK_STEPS, QUICK_STEPS) if quick else (STEPS, RUNS)
    figures: dict[str, Any] = {}
    for experiment in EXPERIMENTS:
        steps = [asdict(at) | measure_steps(experiment, at, folder) for at in steps_at]
        figures[experiment] = {
            "changes": list(EXPERIMENTS[experiment]),
            "steps": steps,
            "runs": [asdict(at) | measure_run(experiment, at, folder) for at in runs_at],
        }
    return figures
