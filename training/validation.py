"""The users that training is validated on."""

from collections.abc import Callable

from turret.data.prepared import PreparedData
from turret.training.config.experiment import TrainingConfig
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
