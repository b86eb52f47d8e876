"""Our sides of benchmarks of training: steps of the trainer on prepared data."""

import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from benchmarks.harness import Side
from benchmarks.peers.contestants import HIDDEN, HISTORY_LENGTH, NEGATIVES, SAMPLED, SESSION_LENGTH
from turret.data.prepared import PreparedData
from turret.training.batches.batches import Batch
from turret.training.config.experiment import load_experiment
from turret.training.distributed import ALONE, World
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.trainer import Trainer


def pooled(data: PreparedData, work: Path) -> Side:
    """The pooled tower as the peers have it, with 20 uniform candidates a step of 8,192 examples."""
    changes = [
        f"tower.user.history_length={HISTORY_LENGTH}",
        f"tower.user.hidden={HIDDEN}",
        "tower.user.last_item=false",
        "tower.user.dropout=0.0",
        "training.batch_size=8192",
        f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={NEGATIVES}}}}}',
    ]
    return training(data, work / "pooled", "youtubednn", changes)


def transformer(data: PreparedData, work: Path, sampled: bool) -> Side:
    """The transformer with 256 uniform candidates a step, or with the full softmax."""
    objective = 'objective={loss="full_softmax"}'
    if sampled:
        objective = f'objective={{loss="sampled_softmax", sampler={{kind="uniform", negatives={SAMPLED}}}}}'
    changes = [f"tower.user.history_length={SESSION_LENGTH}", objective]
    return training(data, work / f"transformer{sampled}", "transformer", changes)


def training(data: PreparedData, folder: Path, experiment: str, changes: list[str]) -> Side:
    """The trainer's steps on its own batches, epoch after epoch; making the batches counts."""
    trainer = trainer_of(data, folder, experiment, changes)
    batches = endless(trainer)

    def run(steps: int) -> tuple[int, float]:
        start, examples = time.perf_counter(), 0
        for batch in islice(batches, steps):
            trainer.step(batch)
            examples += len(batch.targets)
        return examples, time.perf_counter() - start

    return run


def trainer_of(
    data: PreparedData, folder: Path, experiment: str, changes: Sequence[str], world: World = ALONE
) -> Trainer:
    """A silent trainer on the CPU whose model is about to train."""
    settings = load_experiment(experiment, [*changes, "training.device='cpu'"])
    run = Run(folder, settings, data.folder, data.fingerprint)
    trainer = Trainer(run, data, report=lambda line: None, world=world)
    trainer.model.train()
    return trainer


def endless(trainer: Trainer) -> Iterator[Batch]:
    """The batches of its process, epoch after epoch."""
    share = (trainer.world.rank, trainer.world.size)
    for epoch in count():
        yield from trainer.batches.epoch(stream(trainer.settings.seed, "order", epoch), 0, share)
