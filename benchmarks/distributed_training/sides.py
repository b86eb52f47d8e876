"""Processes that train the same towers on the same batches, and make their steps when asked."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.harness import peak_memory_mb
from tests.support.ports import free_port
from turret.training.process import set_up_process


@dataclass(frozen=True)
class Setting:
    """An experiment on prepared data, its changes by dotted names, the examples of a batch of all processes,
    and the rows from which on tables are split.
    """

    data: Path
    folder: Path
    experiment: str
    changes: tuple[str, ...]
    batch: int
    split_from: int


@dataclass(frozen=True)
class Turn:
    """The steps of a side: examples, seconds, losses, and the bytes that a process has sent by kind."""

    examples: int
    seconds: float
    losses: list[float]
    sent: dict[str, int]
    peak_mb: float
    tables_mb: float


class Side:
    """`size` processes of `threads` threads."""

    def __init__(self, setting: Setting, size: int, threads: int) -> None:
        context, port = multiprocessing.get_context("spawn"), free_port()
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            arguments = (theirs, setting, rank, size, threads, port)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, steps: int) -> tuple[int, float]:
        """Make steps: the examples, and the seconds of the slowest process."""
        turns = self.turns(steps)
        return turns[0].examples, max(turn.seconds for turn in turns)

    def turns(self, steps: int) -> list[Turn]:
        """Make steps, as each process saw them."""
        for pipe in self.pipes:
            pipe.send(steps)
        return [pipe.recv() for pipe in self.pipes]

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send(0)
        for process in self.processes:
            process.join(30)
            process.kill()


def _serve(pipe: Connection, setting: Setting, rank: int, size: int, threads: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": str(threads)}
    set_up_process()
    import torch

    from turret.training.distributed.joining import join_world
    from turret.training.parallel import tables

    torch.set_num_threads(threads)
    tables.SPLIT_FROM = setting.split_from
    world = join_world()
    trainer = _trainer(setting, world)
    batches = _endless(trainer)
    while steps := pipe.recv():
        pipe.send(_turn(trainer, islice(batches, steps)))
    world.close()


def _trainer(setting: Setting, world: Any) -> Any:
    from turret.data.prepared import PreparedData
    from turret.training.config.experiment import load_experiment
    from turret.training.run import Run
    from turret.training.trainer import Trainer

    data = PreparedData.open(setting.data)
    experiment = load_experiment(
        setting.experiment, [*setting.changes, f"training.batch_size={setting.batch}", "training.device=cpu"]
    )
    run = Run(setting.folder, experiment, data.folder, data.fingerprint)
    trainer = Trainer(run, data, report=lambda line: None, world=world)
    trainer.model.train()
    return trainer


def _endless(trainer: Any) -> Iterator[Any]:
    from turret.training.randomness import stream

    share = (trainer.world.rank, trainer.world.size)
    for epoch in count():
        yield from trainer.batches.epoch(stream(trainer.settings.seed, "order", epoch), 0, share)


def _turn(trainer: Any, batches: Iterator[Any]) -> Turn:
    sent = getattr(trainer.world, "sent", {})
    before, examples = dict(sent), trainer.progress.examples
    trainer.world.wait()
    start = time.perf_counter()
    losses = [trainer.step(batch) for batch in batches]
    seconds = time.perf_counter() - start
    return Turn(
        examples=trainer.progress.examples - examples,
        seconds=seconds,
        losses=losses,
        sent={kind: sent[kind] - before.get(kind, 0) for kind in sent},
        peak_mb=peak_memory_mb(),
        tables_mb=_tables_mb(trainer),
    )


def _tables_mb(trainer: Any) -> float:
    """The bytes of the item table and its moments in this process."""
    weight = trainer.model.item.table.weight
    optimisers = [one for one in (trainer.optimiser.dense, trainer.optimiser.rows) if one is not None]
    moments = [
        tensor
        for optimiser in optimisers
        for parameter, state in optimiser.state.items()
        if parameter is weight
        for tensor in state.values()
    ]
    total: int = sum(tensor.nbytes for tensor in (weight, *moments))
    return total / 1e6
