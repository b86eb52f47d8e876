"""The choice of an experiment by the data: `turret train --experiment auto`."""

__all__ = ["choice"]
