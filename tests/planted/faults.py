"""All faults, from the module of each area."""

from tests.planted import (
    of_activation,
    of_answers,
    of_data,
    of_keys,
    of_losses,
    of_questions,
    of_samplers,
    of_stores,
    of_tower,
    of_training,
    of_turret,
)
from tests.planted.fault import FAULTS

__all__ = [
    "FAULTS",
    "of_activation",
    "of_answers",
    "of_data",
    "of_keys",
    "of_losses",
    "of_questions",
    "of_samplers",
    "of_stores",
    "of_tower",
    "of_training",
    "of_turret",
]
