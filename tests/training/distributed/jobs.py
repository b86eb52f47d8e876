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
from turret.training.optimisers import optimiser
from turret.training.parallel import tables
from turret.training.randomness import stream
from turret.training.run import Run
from turret.training.trainer import Trainer

Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Step:
    """The loss of one step, the examples and masked candidates, and what it left.

    `rows` has the first and one past the last row of the tables of which a process holds a part.
    """

    loss: float
    examples: int
    masked: int
    gradients: Arrays
    weights: Arrays
    rows: dict[str, tuple[int, int]]
    state: Arrays


def first_step(world: World, data: Path, folder: Path, settings: dict[str, Any]) -> Step:
    """Make the first step of the first epoch.

    `settings` are those of an experiment; `split_from` and `lazy_from` replace the sizes from which on tables
    are split and updated by row.
    """
    experiment = ExperimentConfig.model_validate(settings["experiment"])
    tables.SPLIT_FROM, optimiser.LARGE = settings["split_from"], settings["lazy_from"]
    prepared = PreparedData.open(data)
    run = Run(folder, experiment, prepared.folder, prepared.fingerprint)
    trainer = Trainer(run, prepared, report=lambda line: None, world=world)
    trainer.model.train()
    order = stream(0, "order", 0)
    batches = trainer.batches.epoch(order, 0, (world.rank, world.size))
    loss = trainer.step(next(batches))
    parameters = {**dict(trainer.model.named_parameters()), **dict(trainer.objective.named_parameters())}
    ends = {
        f"{name}.weight": (module.first, module.last)
        for name, module in trainer.model.named_modules()
        if isinstance(module, SplitTable)
    }
    sampler = trainer.objective.sampler
    return Step(
        loss=loss,
        examples=trainer.progress.examples,
        masked=trainer.progress.masked,
        gradients={name: _array(one.grad) for name, one in parameters.items()},
        weights={name: _array(one) for name, one in parameters.items()},
        rows=ends,
        state={name: _array(one) for name, one in (sampler.state() if sampler else {}).items()},
    )


def first_steps(
    world: World, data: Path, folder: Path, scenarios: dict[str, dict[str, Any]]
) -> dict[str, Step]:
    """The first step of each scenario."""
    return {name: first_step(world, data, folder, settings) for name, settings in scenarios.items()}


def _array(tensor: Any) -> NDArray[np.float32]:
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    array: NDArray[np.float32] = dense.detach().numpy().copy()
    return array
