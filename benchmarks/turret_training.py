"""Turret's sides of the comparison with its peers: the same towers and losses, trained by its trainer."""

import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Literal

import torch

from benchmarks.harness import Side
from benchmarks.peers.contestants import HIDDEN, HISTORY_LENGTH, NEGATIVES, SAMPLED, SESSION_LENGTH
from turret.data.prepared import PreparedData
from turret.training.batches.batches import Batch
from turret.training.batches.prefetch import prefetched
from turret.training.config.experiment import load_experiment
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.trainer import Trainer

Device = Literal["cpu", "cuda"]


def pooled(data: PreparedData, work: Path, device: Device = "cpu") -> Side:
    """The pooled tower as the peers have it, with 20 uniform candidates a step of 8,192 examples."""
    changes = [
        f"tower.user.history_length={HISTORY_LENGTH}",
        f"tower.user.hidden={HIDDEN}",
        "tower.user.last_item=false",
        "tower.user.dropout=0.0",
        "training.batch_size=8192",
        f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={NEGATIVES}}}}}',
    ]
    return training(data, work / "pooled", "youtubednn", changes, device)


def transformer_sampled(data: PreparedData, work: Path, device: Device = "cpu") -> Side:
    """The transformer with 256 uniform candidates a step."""
    objective = f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={SAMPLED}}}}}'
    changes = [f"tower.user.history_length={SESSION_LENGTH}", objective]
    return training(data, work / "transformer_sampled", "transformer", changes, device)


def transformer_full(data: PreparedData, work: Path, device: Device = "cpu") -> Side:
    """The transformer with the full softmax."""
    changes = [f"tower.user.history_length={SESSION_LENGTH}", 'objective={loss="full_softmax"}']
    return training(data, work / "transformer_full", "transformer", changes, device)


def training(data: PreparedData, folder: Path, experiment: str, changes: list[str], device: Device) -> Side:
    """The trainer's steps on its own batches, epoch after epoch; making the batches counts."""
    settings = load_experiment(experiment, [*changes, f"training.device='{device}'"])
    trainer = Trainer(Run(folder, settings, data.folder, data.fingerprint), data, report=lambda line: None)
    trainer.model.train()
    batches = _endless(trainer)
    if trainer.device.type != "cpu":
        batches = prefetched(batches, trainer.device)

    def run(steps: int) -> tuple[int, float]:
        start, examples = time.perf_counter(), 0
        for batch in islice(batches, steps):
            trainer.step(batch.to(trainer.device))
            examples += len(batch.targets)
        finish_work(trainer.device)
        return examples, time.perf_counter() - start

    return run


def finish_work(device: torch.device) -> None:
    """Wait for what a device has been given to do: CUDA only takes orders."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _endless(trainer: Trainer) -> Iterator[Batch]:
    for epoch in count():
        yield from trainer.batches.epoch(stream(trainer.settings.seed, "order", epoch))
