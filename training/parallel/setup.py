"""The parts of a trainer that differ between one process and several; torch.distributed is for the latter."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import Batch
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed.world import World
from turret.training.model_loss import model_loss
from turret.training.objectives.contract import Objective, StepLoss
from turret.training.optimisers.optimiser import Optimiser
from turret.training.parallel.files import RunFiles
from turret.training.run import build_model

LossOf = Callable[[Batch, np.random.Generator], StepLoss]


def model_of(world: World, experiment: ExperimentConfig, data: PreparedData) -> TwoTowers:
    """The towers; several processes hold large tables by rows. Raises TrainingError where they can't."""
    if world.size == 1:
        return build_model(experiment, data)
    from turret.training.parallel.tables import build_split_model

    return build_split_model(world, experiment, data)


def loss_of(world: World, objective: Objective, model: TwoTowers) -> LossOf:
    """The loss of a batch, or of this process's part of it."""
    if world.size == 1:
        return lambda batch, random: model_loss(objective, model, batch, random)
    from turret.training.parallel.loss import ParallelLoss

    return ParallelLoss.of(world, objective, model)


def files_of(world: World, folder: Path, model: TwoTowers, optimiser: Optimiser) -> RunFiles:
    """The files of the run; of split tables each process writes its rows."""
    if not model.is_split:
        return RunFiles(folder, world)
    from turret.training.parallel.split_files import SplitFiles

    return SplitFiles.of(world, folder, model, optimiser)
