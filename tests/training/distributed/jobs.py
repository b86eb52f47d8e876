"""What the processes of the tests do; a module of its own, which each of them imports."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.split_table import SplitTable
from turret.training.distributed.world import World
from turret.training.errors import TrainingError
from turret.training.optimisers import optimiser
from turret.training.parallel import tables
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.trainer import Trainer, train

Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Scenario:
    """An experiment, and the sizes from which on tables are split and updated by row."""

    experiment: dict[str, Any]
    split_from: int = 10**6
    lazy_from: int = 10**6


@dataclass(frozen=True)
class Step:
    """The loss of one step, the examples and masked candidates so far, and what it left.

    `rows` has the first and one past the last row of the tables of which a process holds a part.
    """

    loss: float
    examples: int
    masked: int
    gradients: Arrays
    weights: Arrays
    rows: dict[str, tuple[int, int]]
    state: Arrays


def trainer_of(world: World, data: Path, folder: Path, scenario: Scenario) -> Trainer:
    """A trainer of the scenario."""
    tables.SPLIT_FROM, optimiser.LARGE = scenario.split_from, scenario.lazy_from
    experiment = ExperimentConfig.model_validate(scenario.experiment)
    prepared = PreparedData.open(data)
    run = Run(folder, experiment, prepared.folder, prepared.fingerprint)
    return Trainer(run, prepared, report=lambda line: None, world=world)


def next_step(trainer: Trainer) -> Step:
    """Make the next step of the first epoch."""
    trainer.model.train()
    world, first = trainer.world, trainer.progress.step
    batches = trainer.batches.epoch(stream(0, "order", 0), first, (world.rank, world.size))
    loss = trainer.step(next(batches))
    parameters = {**dict(trainer.model.named_parameters()), **dict(trainer.objective.named_parameters())}
    split = {name: one for name, one in trainer.model.named_modules() if isinstance(one, SplitTable)}
    sampler = trainer.objective.sampler
    return Step(
        loss=loss,
        examples=trainer.progress.examples,
        masked=trainer.progress.masked,
        gradients={name: _array(one.grad) for name, one in parameters.items()},
        weights={name: _array(one) for name, one in parameters.items()},
        rows={f"{name}.weight": (table.first, table.last) for name, table in split.items()},
        state={name: _array(one) for name, one in (sampler.state() if sampler else {}).items()},
    )


def first_steps(world: World, data: Path, folder: Path, scenarios: dict[str, Scenario]) -> dict[str, Step]:
    """The first step of each scenario."""
    return {name: next_step(trainer_of(world, data, folder, one)) for name, one in scenarios.items()}


def saved(world: World, data: Path, folder: Path, scenario: Scenario) -> Step:
    """Make two steps, write a checkpoint with a best model, and return the third step."""
    trainer = trainer_of(world, data, folder, scenario)
    if world.leads:
        trainer.run.write()
    world.wait()
    next_step(trainer)
    trainer._save_best()
    next_step(trainer)
    trainer.save()
    return next_step(trainer)


def resumed(world: World, data: Path, folder: Path, scenario: Scenario) -> tuple[Step, Arrays]:
    """Resume the checkpoint in `folder`, and return the next step and the best model."""
    trainer = trainer_of(world, data, folder, scenario)
    trainer.resume()
    return next_step(trainer), {name: _array(one) for name, one in trainer.best.items()}


def trained(world: World, data: Path, folder: Path, scenario: Scenario) -> list[list[float]]:
    """Train to the end: the epochs and values of the validation metric."""
    trainer = trainer_of(world, data, folder, scenario)
    return train(trainer.run, trainer.data, report=lambda line: None, world=world).validated


def refused(world: World, data: Path, folder: Path, scenario: Scenario) -> str:
    """The sentence with which a trainer refuses."""
    try:
        trainer_of(world, data, folder, scenario)
    except TrainingError as error:
        return str(error)
    return ""


def _array(tensor: Any) -> NDArray[np.float32]:
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    array: NDArray[np.float32] = dense.detach().numpy().copy()
    return array
