"""All faults, from the module of each package."""

from tests.planted import of_data, of_service, of_tower, of_training, of_turret
from tests.planted.fault import FAULTS

__all__ = ["FAULTS", "of_data", "of_service", "of_tower", "of_training", "of_turret"]
