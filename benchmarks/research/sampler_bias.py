"""What a sampler costs in quality: one small model, trained with each sampler at K candidates an example.

Protocol (Blanc & Rendle 2018, section 4): train to the end of one fixed schedule with every sampler, and
report the *full softmax* cross entropy and perplexity of held-out targets, with three seeds of model, order
and draws. The schedule is so long that the full softmax has converged: twice the examples change its cross
entropy by less than 0.5 %; on Beauty, which overfits before, it ends at the least cross entropy. Candidates
are drawn for each example, without its positive; the quadratic kernel follows the item vectors in every step,
as the paper's tree does; and the loss is the sampled softmax. The model is the absolute softmax, as the
paper's is where the quadratic kernel is used; the full softmax of the signed model stands beside it.

A whole run takes hours of one core. Every training's row is kept as it ends, and `--resume` goes on where the
last run stopped. `--set NAME`, repeatable, trains on single sets.
"""

import argparse
import itertools
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.harness import Options, run_rows
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.data.synthetic.synthesis import SyntheticConfig, synthesise
from turret.tower.towers.model import TwoTowers, cross_scores
from turret.training.batches.batches import TrainingBatches
from turret.training.config.experiment import ExperimentConfig
from turret.training.evaluation.ranking import histories_of
from turret.training.losses.catalog import full_softmax
from turret.training.model_loss import build_objective, model_loss
from turret.training.objectives.contract import Objective
from turret.training.randomness import stream
from turret.training.run import build_model

Row = dict[str, Any]
CPU = torch.device("cpu")
SHARE = 0.01
BATCH, WIDTH, HISTORY = 512, 32, 20
RATE = 2e-2  # a fifth of it is still 3 % above this after twice the examples of MovieLens 100K


class Case(NamedTuple):
    """A set: its folder, the file of its events (none: a synthetic shop), and the examples of a training."""

    name: str
    events: str
    examples: int
    seeds: tuple[int, ...] = (0, 1, 2)


CASES = (
    Case("ml-100k", "ratings.parquet", 250_000),
    Case("s3rec_beauty", "interactions.parquet", 300_000),
    Case("sasrec_ml-1m", "interactions.parquet", 3_000_000),
)
QUICK = Case("synthetic", "", 30_000, (0, 1))
# The settings of each sampler (K is put in as `negatives`), and its K where 1 % is crossed.
SAMPLERS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "uniform": ({"kind": "uniform", "exclude_positive": True}, (8, 32, 64, 128, 256, 512, 1024)),
    "quadratic": (
        {"kind": "quadratic", "exclude_positive": True, "refresh_every": 1},
        (4, 8, 16, 32, 64, 128),
    ),
}


@dataclass(frozen=True)
class Training:
    """One training: `k` candidates of `sampler`, or the full softmax with `k` = 0."""

    set: str
    sampler: str
    k: int
    absolute: bool
    seed: int
    examples: int

    def is_of(self, row: Row) -> bool:
        """Whether `row` is the measurement of this training."""
        return asdict(self).items() <= row.items()


def trainings(case: Case) -> list[Training]:
    """All trainings of a set, by seed."""
    wanted = []
    for seed in case.seeds:
        wanted += [Training(case.name, "full", 0, kind, seed, case.examples) for kind in (True, False)]
        wanted += [
            Training(case.name, name, size, True, seed, case.examples)
            for name, (_, sizes) in SAMPLERS.items()
            for size in sizes
        ]
    return wanted


def prepare_events(case: Case, source: Path, folder: Path) -> None:
    """Put the case's events, last item out, into a folder of its name."""
    log = source / case.name / case.events
    if not case.events:
        log = folder / "raw"
        synthesise(SyntheticConfig(users=2_000, items=1_000), log)
    prepare(PrepareConfig(source=log), folder / case.name)


def experiment(training: Training) -> ExperimentConfig:
    """The model: inner products of vectors, from the mean and the last of the history; and its objective."""
    scoring = {"kind": "dot", "temperature": 1.0, "absolute": training.absolute}
    user = {"hidden": [], "dropout": 0.0, "history_length": HISTORY}
    objective: dict[str, Any] = {"loss": "full_softmax"}
    if training.k:
        settings, _ = SAMPLERS[training.sampler]
        objective = {"loss": "sampled_softmax", "sampler": {**settings, "negatives": training.k}}
    return ExperimentConfig.model_validate(
        {
            "tower": {"dimension": WIDTH, "user": user, "scoring": scoring},
            "objective": objective,
            "training": {"seed": training.seed},
        }
    )


def train(model: TwoTowers, objective: Objective, data: PreparedData, steps: int, seed: int) -> None:
    """Adam under a half cosine to zero; a sampler that follows the vectors is told of every step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    if objective.sampler:
        objective.sampler.refresh(model.catalog_vectors().detach())
    # Few examples of one user in a batch, or its positives would be candidates of one another.
    batches = TrainingBatches(data, BATCH, history_length=HISTORY, span_length=4)
    epochs = (batches.epoch(stream(seed, "order", epoch)) for epoch in itertools.count())
    for step, batch in enumerate(itertools.islice(itertools.chain.from_iterable(epochs), steps)):
        optimiser.zero_grad()
        torch.autograd.backward(model_loss(objective, model, batch, stream(seed, "draw", step)).loss)
        optimiser.step()
        schedule.step()
        if objective.sampler:
            objective.sampler.update(model.current_vectors)


@torch.no_grad()
def cross_entropy(model: TwoTowers, data: PreparedData) -> float:
    """The mean full softmax cross entropy of held-out targets: the validation item of each user."""
    starts, ends = (np.asarray(bound) for bound in data.bounds("validation"))
    users = np.flatnonzero(ends > starts)
    items = model.eval().catalog_vectors()
    targets = torch.from_numpy(data.event_items[starts[users]].astype(np.int64))
    losses = []
    for first in range(0, len(users), BATCH):
        block = slice(first, first + BATCH)
        histories = histories_of(data, users[block], "validation", HISTORY)
        vectors = model.user_vectors(histories, items[histories.rows])
        losses.append(full_softmax(cross_scores(vectors, items, model.config.scoring), targets[block]))
    return float(torch.cat(losses).mean())


def measured(training: Training, folder: Path) -> Row:
    """Train once on the data prepared in `folder`, and measure."""
    torch.set_num_threads(1)
    data, config = PreparedData.open(folder), experiment(training)
    model = build_model(config, data)
    objective = build_objective(config, data, CPU)
    start = time.process_time()
    train(model, objective, data, training.examples // BATCH, training.seed)
    reached = cross_entropy(model, data)
    return {
        **asdict(training),
        "cross_entropy": reached,
        "perplexity": math.exp(reached),
        "seconds": time.process_time() - start,
    }


def measure(options: Options, kept: Sequence[Row]) -> Iterator[Row]:
    """The rows that are missing, one a core at a time, as they end."""
    named = options.given.set or [case.name for case in CASES]
    for case in [QUICK] if options.quick else [case for case in CASES if case.name in named]:
        wanted = [one for one in trainings(case) if not any(map(one.is_of, kept))]
        with tempfile.TemporaryDirectory() as folder:
            prepare_events(case, options.data, Path(folder))
            spawned = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(len(os.sched_getaffinity(0)), spawned) as pool:
                running = [pool.submit(measured, training, Path(folder) / case.name) for training in wanted]
                for done in as_completed(running):
                    yield done.result()


def summary(rows: Sequence[Row]) -> Row:
    """The mean cross entropy of both full softmaxes, and the K within 1 % by sampler and seed, by set."""
    full: Row = {}
    needed: Row = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = sorted((row for row in rows if row["set"] == name), key=lambda row: (row["seed"], -row["k"]))
        full_rows = [row for row in mine if row["sampler"] == "full"]
        ends = {kind: [row for row in full_rows if row["absolute"] == kind] for kind in (True, False)}
        full[name] = {
            scoring: mean(row["cross_entropy"] for row in ends[scoring == "absolute"])
            for scoring in ("absolute", "signed")
        }
        needed[name] = {
            sampler: {
                str(end["seed"]): least_size(
                    [row for row in mine if (row["sampler"], row["seed"]) == (sampler, end["seed"])], end
                )
                for end in ends[True]
            }
            for sampler in SAMPLERS
        }
    return {"full_softmax": full, "k_within_1pct": needed}


def least_size(rows: Sequence[Row], full: Row) -> int | None:
    """The least K from which on the perplexity of the rows, by falling K, is within 1 % of the full one."""
    near = itertools.takewhile(lambda row: row["perplexity"] <= (1.0 + SHARE) * full["perplexity"], rows)
    return min((row["k"] for row in near), default=None)


if __name__ == "__main__":
    sets = argparse.ArgumentParser(add_help=False)
    sets.add_argument("--set", action="append", choices=[case.name for case in CASES], metavar="NAME")
    run_rows(measure, more=sets, summary=summary)
