"""The loss of a batch under two towers: the objective of an experiment, on prepared data."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.kernels.elementwise import gather_rows
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.batches.batches import Batch, PreparedStatistics, negative_count
from turret.training.config.experiment import ExperimentConfig
from turret.training.distributed import WORLD, World
from turret.training.errors import TrainingError
from turret.training.objectives.contract import Examples, ItemEncoder, Lesson, Objective, SeenItems, StepLoss
from turret.training.objectives.sampled import PairsObjective
from turret.training.samplers.core.contract import GatheredBatch
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.from_batch.in_batch import GivenNegatives
from turret.training.used_items import Targets, wants_repeats


def build_objective(
    experiment: ExperimentConfig, data: PreparedData, device: torch.device, targets: Targets | None = None
) -> Objective:
    """The objective of an experiment on its data. Raises TrainingError where they don't fit each other.

    `targets` are those of the experiment, which are computed if they are not given.
    """
    config, tower, training = experiment.objective, experiment.tower, experiment.training
    targets = targets or Targets.of(experiment, data)
    statistics = PreparedStatistics(data, tower.user.context, training.since, targets)
    # The repeat term ranks used items, so these are no candidates beside the first use of another item.
    masks = wants_repeats(experiment, data) and config.candidates == "drawn" and config.loss.masks_seen
    context = BuildContext(
        statistics, tower.scoring, training.seed, device, config.mask_known or masks, tower.dimension
    )
    if config.loss.needs_propensities:
        _check_propensities(config.loss.kind, data)
    if config.candidates != "drawn":
        _check_negatives(config.candidates, data)
    if config.candidates == "labelled" and (pair_loss := config.loss.pair_loss()) is not None:
        return PairsObjective(pair_loss)
    settings = GivenNegatives() if config.candidates == "given" else config.sampler
    return config.loss.objective(context, None if settings is None else settings.build(context))


def _check_propensities(loss: str, data: PreparedData) -> None:
    """Raise TrainingError unless answers that led to events drew some of their items."""
    if data.propensities is None:
        raise TrainingError(
            f"objective.loss = {loss!r} needs the propensities of logged answers, and {data.folder} has "
            "none; prepare the data with --answers, or use 'sampled_softmax'."
        )
    if not (np.asarray(data.propensities) < 1).any():
        raise TrainingError(
            f"objective.loss = {loss!r}: every propensity of {data.folder} is 1, so the answers explored "
            "nothing, and no correction is possible; log answers with exploration, or use 'sampled_softmax'."
        )


def _check_negatives(candidates: str, data: PreparedData) -> None:
    """Raise TrainingError unless training events have negatives."""
    if data.negatives is None:
        raise TrainingError(
            f"objective.candidates = {candidates!r} needs negatives, and {data.folder} has none; prepare the "
            "data with --label or --negatives, or draw candidates by objective.sampler."
        )
    if not negative_count(data.negatives, *data.bounds("train")):
        raise TrainingError(
            f"objective.candidates = {candidates!r}: no training event of {data.folder} has a negative; "
            "prepare the data with another split, or draw candidates by objective.sampler."
        )


def model_loss(
    objective: Objective,
    model: TwoTowers,
    batch: Batch,
    random: np.random.Generator,
    lesson: Callable[[PackedHistories], Lesson] | None = None,
) -> StepLoss:
    """The loss of a batch; candidates are drawn with `random`, and `lesson` gives that of its teachers.

    With several processes, `batch` is the part of this one; candidates from the batch come from all parts.
    """
    histories, targets, groups, gathered = batch.histories, batch.targets, None, None
    items: ItemEncoder = model
    if objective.scores_catalog:
        items = _Catalog(model.catalog_vectors(), model)
        read, positives = items.item_vectors(histories.rows), items.item_vectors(targets)
    else:
        read, positives = model.item_vectors_each(histories.rows, targets)
    windows = histories
    if objective.shares_users:
        first, groups = histories.distinct()
        windows = histories.take(first)
    world = WORLD.get()
    if world.size > 1 and objective.sampler is not None and objective.sampler.draws_batch:
        gathered = _gathered(world, batch, positives)
    users = model.user_vectors(windows, read)
    if users.dim() == 3:  # the target chooses, so that examples of one user have different vectors
        users, groups = model.training_vectors(users, positives, groups), None
    examples = Examples(
        users=users,
        positives=targets,
        positive_vectors=positives,
        items=items,
        scoring=model.config.scoring,
        weights=batch.weights,
        last_items=histories.rows[histories.ends - 1] if len(histories.rows) else None,
        groups=groups,
        seen=seen_items(batch) if objective.mask_seen else None,
        negatives=batch.negatives,
        negative_weights=batch.negative_weights,
        gathered=gathered,
        propensities=batch.propensities,
        lesson=None if lesson is None else lesson(windows),
    )
    loss: StepLoss = objective(examples, random)
    return loss


@dataclass(frozen=True)
class _Catalog:
    """Item vectors [N, D] that a step computes once for all uses."""

    vectors: Tensor
    model: TwoTowers

    def item_vectors(self, rows: Tensor) -> Tensor:
        return gather_rows(self.vectors, rows)

    def current_vectors(self, rows: Tensor) -> Tensor:
        return self.model.current_vectors(rows)

    def catalog_vectors(self) -> Tensor:
        return self.vectors


def _gathered(world: World, batch: Batch, vectors: Tensor) -> GatheredBatch:
    """The positives of all processes with their `vectors`."""
    positives, vectors = batch.targets[: batch.size], vectors[: batch.size]
    counts = world.row_counts(batch.size)
    return GatheredBatch(
        positives=world.gathered(positives, counts),
        vectors=world.gathered_vectors(vectors, counts),
        first=sum(counts[: world.rank]),
        own=batch.size,
    )


def seen_items(batch: Batch) -> SeenItems:
    """The items of each example's user, as far as the batch (of all processes) reads or predicts them.

    For queries whose items share an answer, these are the items of that answer.
    """
    histories = batch.histories
    groups = histories.users if batch.groups is None else batch.groups
    users = torch.cat([batch.owners, groups])
    rows = torch.cat([histories.rows, batch.targets])
    world = WORLD.get()
    return SeenItems.of(world.gathered(users), world.gathered(rows), groups)
