"""What a training step costs as the catalog grows, with a sampled loss."""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.harness import Options
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import ColumnSettings, PrepareConfig
from turret.training.batches.batches import Batch
from turret.training.config.experiment import load_experiment
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.trainer import Trainer

SIZES = (10_000, 1_000_000)
EVENTS_A_USER, EVENTS = 50, 2_000_000
TURNS, STEPS = 7, 10


def events(items: int, folder: Path) -> Path:
    """Events of all items, each at least once and as popular as the next."""
    random = np.random.default_rng(0)
    drawn = np.concatenate([np.arange(items), random.integers(0, items, EVENTS - items)])
    random.shuffle(drawn)
    path = folder / "events.parquet"
    pl.DataFrame({"user": np.arange(EVENTS) // EVENTS_A_USER, "item": drawn}).write_parquet(path)
    return path


class Stepper:
    """A trainer of the default experiment over N items, step by step."""

    def __init__(self, items: int, folder: Path) -> None:
        folder.mkdir()
        config = PrepareConfig(source=events(items, folder), columns=ColumnSettings(in_file_order=True))
        prepare(config, folder / "prepared")
        data = PreparedData.open(folder / "prepared")
        experiment = load_experiment("youtubednn", ["training.device='cpu'"])
        self.trainer = Trainer(Run(folder / "run", experiment, data.folder, data.fingerprint), data)
        self.trainer.model.train()
        self.batches = self._batches()

    def _batches(self) -> Iterator[Batch]:
        for epoch in range(1000):
            yield from self.trainer.batches.epoch(stream(0, "order", epoch))

    def seconds(self, steps: int) -> float:
        """How long so many steps take."""
        start = time.perf_counter()
        for _ in range(steps):
            self.trainer.step(next(self.batches))
        return time.perf_counter() - start


def catalog_steps(options: Options, folder: Path) -> dict[str, float]:
    """The median step at both sizes, in turns, and their ratio."""
    sides = [Stepper(items, folder / str(items)) for items in SIZES]
    for side in sides:
        side.seconds(STEPS)
    turns = [[side.seconds(STEPS) / STEPS for side in sides] for _ in range(3 if options.quick else TURNS)]
    small, large = (statistics.median(times) for times in zip(*turns, strict=True))
    return {
        "step_1e4_ms": 1e3 * small,
        "step_1e6_ms": 1e3 * large,
        "step_1e6_over_1e4": large / small,
    }
