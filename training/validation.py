"""The users that training is validated on, and their metric."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import ExperimentConfig, TrainingConfig
from turret.training.distributed.world import World
from turret.training.evaluation.evaluation import Relevant, sample_users, validated_items, validation_metric
from turret.training.evaluation.ranking import CatalogScores
from turret.training.randomness import stream


def validation_users(
    data: PreparedData, settings: TrainingConfig, report: Callable[[str], None]
) -> Relevant | None:
    """The users of the validation metric, drawn once; None for data without a validation part, reported."""
    starts, ends = data.bounds("validation")
    if not (ends > starts).any():
        report("The data has no validation part: all epochs are run and the last model is kept.")
        return None
    relevant = validated_items(data, settings.metric)
    random = stream(settings.seed, "validation users", 0)
    return sample_users(relevant, settings.validation_users, random)


@dataclass(frozen=True)
class Validation:
    """Measures the towers in training; several processes share the work and get the same value.

    `scores` is the objective's where a loss does not rank by an inner product, else None; `popularity` [N]
    ranks for users without a history.
    """

    experiment: ExperimentConfig
    data: PreparedData
    model: TwoTowers
    scores: CatalogScores | None
    popularity: NDArray[np.int64]
    world: World

    def metric_of(self, users: Relevant) -> float:
        """The mean of `training.metric` over `users`."""
        popularity, world = self.popularity, self.world
        metric, exclude_seen = self.experiment.training.metric, self.experiment.evaluation.exclude_seen

        def mean_of(part: Relevant) -> float:
            return validation_metric(
                self.model, self.data, popularity, part, metric, exclude_seen, self.scores
            )

        if world.size == 1:
            return mean_of(users)
        own = users.take(np.arange(world.rank, len(users.users), world.size))
        count = len(own.users)
        total, _ = world.sums([mean_of(own) * count if count else 0.0, count])
        return total / len(users.users)
