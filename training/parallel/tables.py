"""Towers whose large tables are split by rows over the processes."""

from torch import nn

from turret.data.prepared import PreparedData
from turret.tower.layers.tables import Table, tables_by
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import ExperimentConfig
from turret.training.device import pick_device
from turret.training.distributed.processes import Processes
from turret.training.distributed.split_table import SplitTable
from turret.training.distributed.world import World
from turret.training.errors import TrainingError
from turret.training.evaluation.auc import AUC
from turret.training.optimisers.optimiser import LARGE
from turret.training.run import build_model

# Tables that are updated by row are worth splitting.
SPLIT_FROM = LARGE


def build_split_model(world: World, experiment: ExperimentConfig, data: PreparedData) -> TwoTowers:
    """Towers whose tables of at least SPLIT_FROM rows are split.

    Smaller ones are in every process: to sum their gradients sends about as much as to exchange their rows.

    Raises:
        TrainingError: a setting that needs whole tables.
    """
    assert isinstance(world, Processes)

    def table(rows: int, width: int, padding: int | None) -> Table:
        if rows < SPLIT_FROM:
            return Table(rows, width, padding)
        return SplitTable(rows, width, padding, world)

    with tables_by(table):
        model = build_model(experiment, data)
    if model.is_split:
        _check(experiment)
    return model


def split_weights(model: TwoTowers) -> list[nn.Parameter]:
    """The rows of split tables that this process holds."""
    return [module.weight for module in model.modules() if isinstance(module, SplitTable)]


def _check(experiment: ExperimentConfig) -> None:
    training, loss = experiment.training, experiment.objective.loss
    limit = f"the tables of {SPLIT_FROM:,} rows or more are split over the processes"
    if pick_device(training.device).type == "cuda":
        # Validation and gradient clipping mix tensors of the CPU with those of split tables.
        raise TrainingError(
            f"training.device = {training.device!r}: {limit}, which works on CPUs alone; set training.device "
            "= 'cpu' and hide the GPUs with CUDA_VISIBLE_DEVICES=, or train on one GPU without torchrun."
        )
    if training.chunk_size:
        raise TrainingError(
            f"training.chunk_size = {training.chunk_size}: {limit}, which look rows up together, and "
            "chunks differ in number; set training.chunk_size = 0 and start more processes instead."
        )
    if training.metric == AUC:
        raise TrainingError(
            f"training.metric = {AUC!r}: {limit}, and no process ranks by whole rows; set training.metric = "
            "'ndcg@10'."
        )
    if not loss.servable:
        raise TrainingError(
            f"objective.loss = {loss.kind!r}: {limit}, and items that are not ranked by an inner product "
            "need them whole; train in one process, or choose another loss."
        )
