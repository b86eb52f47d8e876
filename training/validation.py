"""The users that training is validated on."""

from collections.abc import Callable

import numpy as np

from turret.data.prepared import PreparedData
from turret.training.config.experiment import TrainingConfig
from turret.training.distributed.world import World
from turret.training.evaluation.evaluation import Relevant, sample_users, validated_items
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


def mean_over(world: World, users: Relevant, mean_of: Callable[[Relevant], float]) -> float:
    """The mean of a metric over `users`, of which each process measures a part by `mean_of`."""
    if world.size == 1:
        return mean_of(users)
    own = users.take(np.arange(world.rank, len(users.users), world.size))
    count = len(own.users)
    total, _ = world.sums([mean_of(own) * count if count else 0.0, count])
    return total / len(users.users)
