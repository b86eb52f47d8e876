"""What can be wrong with towers and bundles, one sentence each: what, where, and what would work."""

from data.errors import TurretError


class TowerError(TurretError):
    """A tower's settings or inputs that can't be used as they are."""
