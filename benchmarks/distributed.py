"""Training by two processes of one thread, beside one process of one thread and one of two threads.

The trainings are the transformer as it is shipped (full softmax) and with candidates that each process draws,
and the pooled tower with the candidates of the whole batch and with a table that is updated by row. All sides
make the same global batches and take turns in one run; the claims are ratios of medians. One process on half
a batch shows the cost of smaller batches alone. The processes talk over the loopback.
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Options, Turn, alternate, peak_memory_mb, rate_ratio, rate_summary, run
from tests.support.ports import free_port
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.process import set_up_process


@dataclass(frozen=True)
class Setting:
    """An experiment on prepared data, its changes by dotted names, and the examples of a whole batch."""

    data: Path
    folder: Path
    experiment: str
    changes: tuple[str, ...]
    batch: int


@dataclass(frozen=True)
class Steps:
    """The steps of a side: examples, seconds, and the bytes that a process has sent by kind."""

    examples: int
    seconds: float
    sent: dict[str, int]
    peak_mb: float


class Processes:
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
        """Make steps; return the number of examples, and the seconds of the slowest process."""
        turns = self.turns(steps)
        return turns[0].examples, max(turn.seconds for turn in turns)

    def turns(self, steps: int) -> list[Steps]:
        """Make steps; return the figures of each process."""
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

    from benchmarks.training_sides import endless, trainer_of
    from turret.data.prepared import PreparedData
    from turret.training.distributed import join_world, joined

    torch.set_num_threads(threads)
    world = join_world()
    changes = [*setting.changes, f"training.batch_size={setting.batch}"]
    data = PreparedData.open(setting.data)
    with joined(world):
        trainer = trainer_of(data, setting.folder, setting.experiment, changes)
        batches = endless(trainer)
        while steps := pipe.recv():
            pipe.send(_turn(trainer, islice(batches, steps)))
    world.close()


def _turn(trainer: Any, batches: Iterator[Any]) -> Steps:
    sent = getattr(trainer.world, "sent", {})
    before, examples = dict(sent), trainer.progress.examples
    trainer.world.wait()
    start = time.perf_counter()
    for batch in batches:
        trainer.step(batch)
    seconds = time.perf_counter() - start
    return Steps(
        examples=trainer.progress.examples - examples,
        seconds=seconds,
        sent={kind: sent[kind] - before.get(kind, 0) for kind in sent},
        peak_mb=peak_memory_mb(),
    )


TWO, ONE, THREADS, HALF = "2 processes", "1 process", "1 process of 2 threads", "1 process, half batches"
ROUNDS, QUICK_ROUNDS = 5, 1
ITEMS, WIDE_ITEMS, EVENTS_A_USER = 10_000, 200_000, 50
IN_BATCH = 'objective={loss="sampled_softmax_corrected", sampler={kind="in_batch"}}'
SAMPLED = 'objective={loss="sampled_softmax", sampler={kind="uniform", negatives=256}}'
STILL = "tower.user.dropout=0.0"
BATCH = 4096


def shop(folder: Path, items: int, users: int) -> Path:
    """Prepared data of users with 50 events each; every item has one."""
    random = np.random.default_rng(0)
    events = users * EVENTS_A_USER
    drawn = np.concatenate([random.permutation(items), random.zipf(1.3, events) % items])[:events]
    random.shuffle(drawn)
    rows = zip(np.repeat(np.arange(users), EVENTS_A_USER), drawn, strict=True)
    folder.mkdir()
    lines = (f"{user},{item}" for user, item in rows)
    (folder / "events.csv").write_text("\n".join(["user,item", *lines]) + "\n", encoding="utf-8")
    config = {"source": folder / "events.csv", "columns": {"in_file_order": True}}
    prepare(PrepareConfig.model_validate(config), folder / "prepared")
    return folder / "prepared"


def settings(work: Path) -> dict[str, tuple[Setting, int]]:
    """The trainings by name, each with the steps of a turn."""
    usual, wide = shop(work / "shop", ITEMS, 4000), shop(work / "wide", WIDE_ITEMS, 6000)
    pooled = ("tower.user.history_length=50", IN_BATCH, STILL)
    return {
        "transformer": (Setting(usual, work, "transformer", (), BATCH), 4),
        "transformer_sampled": (Setting(usual, work, "transformer", (SAMPLED,), BATCH), 20),
        "in_batch": (Setting(usual, work, "youtubednn", pooled, BATCH), 6),
        "large_table": (Setting(wide, work, "youtubednn", pooled, BATCH), 6),
    }


def compare(setting: Setting, steps: int, rounds: int) -> dict[str, Any]:
    """Let the sides take turns; return examples/s, bytes and memory."""
    sides = {TWO: Processes(setting, 2, 1), ONE: Processes(setting, 1, 1), THREADS: Processes(setting, 1, 2)}
    sides[HALF] = Processes(replace(setting, batch=setting.batch // 2), 1, 1)
    try:
        lengths = {name: 2 * steps if name == HALF else steps for name in sides}
        rates = alternate({name: Turn(side.run, lengths[name]) for name, side in sides.items()}, rounds)
        last = {name: side.turns(steps) for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.close()
    two = last[TWO]
    sent = {kind: statistics.mean(turn.sent[kind] for turn in two) / steps for kind in two[0].sent}
    return {
        "examples_per_s": rate_summary(rates),
        "over_one": rate_ratio(rates, TWO, [ONE]),
        "over_two_threads": rate_ratio(rates, TWO, [THREADS]),
        "half_over_one": rate_ratio(rates, HALF, [ONE]),
        "bytes_sent_a_step": sent,
        "peak_mb": {name: max(turn.peak_mb for turn in turns) for name, turns in last.items()},
    }


def measure(options: Options) -> dict[str, Any]:
    """Measure every training on all sides; the speedup is that of the shipped transformer."""
    with tempfile.TemporaryDirectory() as work:
        rounds = QUICK_ROUNDS if options.quick else ROUNDS
        trainings = {
            name: compare(setting, 2 if options.quick else steps, rounds)
            for name, (setting, steps) in settings(Path(work)).items()
        }
    return {"speedup_2_over_1": trainings["transformer"]["over_one"]["ratio"], "trainings": trainings}


if __name__ == "__main__":
    run(measure, needs_data=False)
