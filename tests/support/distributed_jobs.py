"""Jobs of several processes of one training, and the experiments whose steps they make."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import distributed
from torch._C._distributed_c10d import FileStore

from turret.data.prepared import PreparedData
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed import World, joined
from turret.training.loop import optimiser
from turret.training.loop.train import train
from turret.training.loop.trainer import Trainer
from turret.training.process import set_up_process
from turret.training.randomness import stream
from turret.training.run import Run

Arrays = dict[str, NDArray[np.float32]]
Tables = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """An experiment, and the size from which on tables are updated by row."""

    experiment: dict[str, Any]
    lazy_from: int = 10**6


@dataclass(frozen=True)
class Step:
    """The loss of one step, the examples and masked candidates so far, and what it left."""

    loss: float
    examples: int
    masked: int
    gradients: Arrays
    weights: Arrays
    state: Arrays


def trainer_of(data: Path, folder: Path, scenario: Scenario) -> Trainer:
    """A trainer of the scenario."""
    optimiser.LARGE = scenario.lazy_from
    experiment = ExperimentConfig.model_validate(scenario.experiment)
    prepared = PreparedData.open(data)
    run = Run(folder, experiment, prepared.folder, prepared.fingerprint)
    return Trainer(run, prepared, report=lambda line: None)


def next_step(trainer: Trainer) -> Step:
    """Make the next step of the first epoch."""
    trainer.model.train()
    world, first = trainer.world, trainer.progress.step
    batches = trainer.batches.epoch(stream(0, "order", 0), first, (world.rank, world.size))
    loss = trainer.step(next(batches))
    parameters = {**dict(trainer.model.named_parameters()), **dict(trainer.objective.named_parameters())}
    sampler = trainer.objective.sampler
    return Step(
        loss=loss,
        examples=trainer.progress.examples,
        masked=trainer.progress.masked,
        gradients={name: _array(one.grad) for name, one in parameters.items()},
        weights={name: _array(one) for name, one in parameters.items()},
        state={name: _array(one) for name, one in (sampler.state() if sampler else {}).items()},
    )


def first_steps(data: Path, folder: Path, scenarios: dict[str, Scenario]) -> dict[str, Step]:
    """The first step of each scenario."""
    return {name: next_step(trainer_of(data, folder, one)) for name, one in scenarios.items()}


def saved(data: Path, folder: Path, scenario: Scenario) -> Step:
    """Make two steps, write a checkpoint with a best model, and return the third step."""
    trainer = trainer_of(data, folder, scenario)
    if trainer.world.leads:
        trainer.run.write()
    trainer.world.wait()
    next_step(trainer)
    trainer._save_best()
    next_step(trainer)
    trainer.save()
    return next_step(trainer)


def resumed(data: Path, folder: Path, scenario: Scenario) -> tuple[Step, Arrays]:
    """Resume the checkpoint in `folder`, and return the next step and the best model."""
    trainer = trainer_of(data, folder, scenario)
    trainer.resume()
    return next_step(trainer), {name: _array(one) for name, one in trainer.best.items()}


def trained(data: Path, folder: Path, scenario: Scenario) -> list[list[float]]:
    """Train to the end: the epochs and values of the validation metric."""
    trainer = trainer_of(data, folder, scenario)
    return train(trainer.run, trainer.data, report=lambda line: None).validated


def _array(tensor: Any) -> NDArray[np.float32]:
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    array: NDArray[np.float32] = dense.detach().numpy().copy()
    return array


POOLED = {"user": {"kind": "pooled", "dropout": 0.0}, "dimension": 16}
TRANSFORMER = {"user": {"kind": "transformer", "dropout": 0.0, "history_length": 20}, "dimension": 16}
ATTENTIVE = {"user": {"kind": "attentive", "dropout": 0.0}, "dimension": 16}
IN_BATCH = {"kind": "in_batch"}
UNIQUE = {"kind": "in_batch", "unique": True, "frequencies": "streaming"}
MIXED = {"kind": "mixed", "parts": [{"kind": "cross_batch"}, {"kind": "in_batch"}]}
CORRECTED = "sampled_softmax_corrected"


def experiment(
    tower: Tables, loss: str, sampler: Tables | None = None, training: Tables | None = None, **objective: Any
) -> Tables:
    fixed = {"batch_size": 700, "device": "cpu", "precision": "float32", "gradient_clip": 0.05}
    return {
        "tower": tower,
        "objective": {"loss": {"kind": loss}, "sampler": sampler, **objective},
        "training": {**fixed, **(training or {})},
    }


FEATURES_OF_ITEMS = Scenario(experiment({**POOLED, "item": {"features": "all"}}, CORRECTED, IN_BATCH))
# A batch of few rows: where it reads most of the catalog, one process computes the whole catalog, and a row
# whose gradient is zero still moves on by its moments.
BY_ROW = Scenario(experiment(TRANSFORMER, CORRECTED, IN_BATCH, {"batch_size": 100}), lazy_from=100)
STEPS = {
    "in-batch, transformer": Scenario(experiment(TRANSFORMER, CORRECTED, IN_BATCH)),
    "in-batch, attentive": Scenario(experiment(ATTENTIVE, "refined_logq", IN_BATCH)),
    "unique and streaming": Scenario(experiment(POOLED, CORRECTED, UNIQUE)),
    "known items masked": Scenario(experiment(POOLED, CORRECTED, IN_BATCH, mask_known=True)),
    "full softmax": Scenario(experiment(TRANSFORMER, "full_softmax")),
    "features of items": FEATURES_OF_ITEMS,
    "tables updated by row": BY_ROW,
    "cross-batch": Scenario(experiment(POOLED, CORRECTED, MIXED)),
    "fewer spans than processes": Scenario(experiment(POOLED, CORRECTED, IN_BATCH, {"batch_size": 2})),
}
LONG = {"epochs": 6, "learning_rate": 0.01, "batch_size": 500, "gradient_clip": 1.0}
TRAINED = experiment(POOLED, "sampled_softmax", {"kind": "uniform", "negatives": 64}, LONG)
# Sums of float32 differ with their order.
ROUNDING = 1e-6


def check_equal(together: Step, alone: Step) -> None:
    """Both made the same step."""
    assert together.loss == pytest.approx(alone.loss, rel=ROUNDING)
    assert (together.examples, together.masked) == (alone.examples, alone.masked)
    for name, gradient in alone.gradients.items():
        np.testing.assert_allclose(together.gradients[name], gradient, rtol=0, atol=ROUNDING, err_msg=name)
        # Adam's first steps are as long for the rounding of a gradient as for a gradient.
        clear = (np.abs(gradient) > ROUNDING) | (gradient == 0)
        after, expected = together.weights[name][clear], alone.weights[name][clear]
        np.testing.assert_allclose(after, expected, rtol=0, atol=ROUNDING, err_msg=name)
    for name, state in alone.state.items():
        np.testing.assert_allclose(together.state[name], state, rtol=0, atol=ROUNDING, err_msg=name)


@dataclass(frozen=True)
class Job:
    """A function of a world of `size` processes and of `arguments`."""

    size: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


def in_processes(jobs: Sequence[Job], folder: Path) -> list[list[Any]]:
    """What each job returned by rank; the same processes, of one thread each, do one job after the other.

    They meet in files of `folder`. To start processes takes longer than most jobs.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=_run, args=(rank, folder, results, jobs))
        for rank in range(max(job.size for job in jobs))
    ]
    for process in processes:
        process.start()
    answers: dict[tuple[int, int], Any] = {}
    try:
        while len(answers) < sum(job.size for job in jobs):
            # Twice as long as all jobs of the tests take on a busy machine.
            number, rank, answer, failure = results.get(timeout=240)
            assert not failure, f"process {rank} in job {number}:\n{failure}"
            answers[number, rank] = answer
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [[answers[number, rank] for rank in range(job.size)] for number, job in enumerate(jobs)]


def _run(rank: int, folder: Path, results: Any, jobs: Sequence[Job]) -> None:
    set_up_process()
    torch.set_num_threads(1)
    for number, job in enumerate(jobs):
        if rank < job.size:
            try:
                results.put((number, rank, _answer(rank, folder / f"job {number}", job), ""))
            except Exception:
                results.put((number, rank, None, traceback.format_exc()))


def _answer(rank: int, meeting: Path, job: Job) -> Any:
    os.environ["WORLD_SIZE"] = str(job.size)
    store = FileStore(str(meeting), job.size)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=job.size)
    world = World(distributed.new_group())
    with joined(world):
        answer = job.function(*job.arguments)
    world.wait()
    world.close()
    return answer
