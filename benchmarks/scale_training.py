"""The memory, disk and time of preparation, training and validation: parts of `benchmarks.scale`."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from benchmarks.preparation import PERIOD, START, write_log
from benchmarks.processes import alone, turret_cost
from benchmarks.training_sides import training
from turret.data.prepared import PreparedData
from turret.data.synthetic.shop import GENRES
from turret.training.config.experiment import load_experiment
from turret.training.loop.trainer import Trainer
from turret.training.process import keep_freed_memory
from turret.training.run import Run

TURN_SECONDS, TURNS = 1.5, 4


def timed_steps(prepared: Path, run: Path, experiment: str, changes: list[str]) -> dict[str, float]:
    """Processor microseconds an example, in one thread; the first turn warms up."""
    keep_freed_memory()
    torch.set_num_threads(1)
    side = training(PreparedData.open(prepared), run, experiment, changes)
    costs = []
    for _ in range(1 + TURNS):
        begun, spent, examples = time.process_time(), 0.0, 0
        while spent < TURN_SECONDS:
            examples += side(1)[0]
            spent = time.process_time() - begun
        costs.append(spent / examples)
    return {"processor_us_per_example": 1e6 * min(costs[1:])}


def timed_validation(prepared: Path, run: Path, dimension: int, users: int) -> dict[str, float]:
    """Processor seconds to rank the catalog for a user with an untrained model, in one thread.

    With a large catalog few users are ranked at a time, as the scores of a block are kept small, and each
    block reads all item vectors: the cost of a user grows with the square of the items.
    """
    torch.set_num_threads(1)
    data = PreparedData.open(prepared)
    changes = [f"tower.dimension={dimension}", f"training.validation_users={users}"]
    experiment = load_experiment("youtubednn", changes)
    trainer = Trainer(Run(run, experiment, data.folder, data.fingerprint), data, lambda line: None)
    assert trainer.users is not None
    begun = time.process_time()
    trainer.validation_metric(trainer.users)
    count = len(trainer.users.users)
    return {"users": count, "seconds_per_user": (time.process_time() - begun) / count}


# With a large catalog the transformer's full softmax would be slow, as its experiment says.
SAMPLED = 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=1024}}'
EXPERIMENTS: dict[str, tuple[str, ...]] = {"youtubednn": (), "transformer": (SAMPLED,)}
EVENTS = 300_000
# Memory does not depend on the number of users, and a ranking of a million items takes long.
VALIDATED = "training.validation_users=1000"
ONE_DAY = 86_400


class Shape(NamedTuple):
    """The sizes that a training depends on: rows of the item table, their width, events of a history."""

    items: int
    dimension: int
    history: int


STEPS = (Shape(20_000, 64, 50), Shape(20_000, 128, 50), Shape(20_000, 64, 200), Shape(20_000, 128, 200))
RUNS = (*STEPS, Shape(1_000_000, 64, 50), Shape(1_000_000, 128, 50))
# Each shape has a number of users whose ranking takes some seconds.
VALIDATIONS = (
    (Shape(20_000, 64, 50), 4096),
    (Shape(200_000, 64, 50), 512),
    (Shape(1_000_000, 64, 50), 64),
    (Shape(1_000_000, 128, 50), 64),
)
QUICK_STEPS = (Shape(2_000, 16, 10),)
QUICK_VALIDATIONS = ((Shape(2_000, 16, 10), 16),)


def log_of(shape: Shape, folder: Path, least_events: int = EVENTS) -> Path:
    """Prepare a log in which every item occurs, unless it exists; return the prepared folder."""
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


def measure_steps(experiment: str, shape: Shape, folder: Path) -> dict[str, float]:
    """The cost of steps in one thread."""
    # `turret train` sets this, too: threads that spin would count.
    passive = {"OMP_WAIT_POLICY": "PASSIVE"}
    log, run = log_of(shape, folder), folder / "run"
    return alone(timed_steps, log, run, experiment, changes_of(experiment, shape), **passive)


def measure_run(experiment: str, shape: Shape, folder: Path) -> dict[str, float]:
    """The peak of `turret train` for one epoch, and the bytes that it writes."""
    run = folder / "run"
    words: list[object] = ["train", "--data", log_of(shape, folder), "--run", run, "--overwrite"]
    for change in ("training.epochs=1", VALIDATED, *changes_of(experiment, shape)):
        words += ["--set", change]
    return turret_cost(*words, "--experiment", experiment)._asdict() | {"run_mb": folder_mb(run)}


def changes_of(experiment: str, shape: Shape) -> list[str]:
    """The settings of the experiment for a shape."""
    sizes = [f"tower.dimension={shape.dimension}", f"tower.user.history_length={shape.history}"]
    return [*sizes, *EXPERIMENTS[experiment]]


def measure_validation(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Processor seconds of one thread for a user of the validation, by catalog and width."""
    return [
        shape._asdict()
        | alone(timed_validation, log_of(shape, folder), folder / "ranked", shape.dimension, users)
        for shape, users in (QUICK_VALIDATIONS if quick else VALIDATIONS)
    ]


def folder_mb(folder: Path) -> float:
    """Megabytes (10^6 bytes) of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure_training(folder: Path, quick: bool) -> dict[str, Any]:
    """Measure all points, by experiment."""
    steps_at, runs_at = (QUICK_STEPS, QUICK_STEPS) if quick else (STEPS, RUNS)
    return {
        experiment: {
            "steps": [at._asdict() | measure_steps(experiment, at, folder) for at in steps_at],
            "runs": [at._asdict() | measure_run(experiment, at, folder) for at in runs_at],
        }
        for experiment in EXPERIMENTS
    }


POLL = 0.05  # seconds between two looks at a folder that grows


# Events of a log, and the users and items that they are drawn from.
LOGS = (
    (1_000_000, 20_000, 5_000),
    (10_000_000, 200_000, 50_000),
    (10_000_000, 2_000_000, 50_000),
    (10_000_000, 200_000, 1_000_000),
    (30_000_000, 600_000, 150_000),
)
QUICK_LOGS = ((20_000, 400, 100),)


@contextmanager
def watched(folder: Path) -> Iterator[list[float]]:
    """Yield megabytes of the folder, of which the last value is the highest so far."""
    most, ended = [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(POLL):
            try:
                most.append(max(most[-1], folder_mb(folder)))
            except FileNotFoundError:  # a file was renamed meanwhile
                continue

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def write_items(path: Path, items: int) -> None:
    """Write `items` items with titles of four words, as the synthetic shop has them."""
    random = np.random.default_rng(1)
    genres = np.array(list(GENRES))
    words = np.array(sorted({word for pair in GENRES.values() for part in pair for word in part}))

    def joined(choices: NDArray[np.str_], count: int, separator: str) -> pl.Expr:
        columns = [pl.lit(pl.Series(random.choice(choices, items))) for _ in range(count)]
        return pl.concat_str(columns, separator=separator)

    pl.select(
        item_id=pl.int_range(items),
        title=joined(words, 4, " "),
        genres=joined(genres, 2, "|"),
        price=pl.lit(pl.Series(random.gamma(2, 10, items).round(2))),
        released=pl.lit(pl.Series(START + random.integers(0, PERIOD, items))),
    ).write_parquet(path)


def measure_preparation(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Prepare each log with its items, and count its users, items and events."""
    points = []
    for events, users, items in QUICK_LOGS if quick else LOGS:
        with TemporaryDirectory(dir=folder) as work:
            source, target = Path(work) / "log", Path(work) / "work" / "prepared"
            target.parent.mkdir()
            write_log(source, events, users, items)
            write_items(Path(work) / "items.parquet", items)
            words = ("data", "prepare", source, "--items", Path(work) / "items.parquet", "--to", target)
            with watched(target.parent) as most:
                cost = turret_cost(*words)
            data = PreparedData.open(target)
            points.append(
                {
                    "events": events,
                    "users": len(data.users),
                    "items": len(data.item_ids),
                    **cost._asdict(),
                    "prepared_mb": folder_mb(target),
                    "work_mb": max(most[-1], folder_mb(target)),
                }
            )
    return points
