"""What can be wrong with towers and bundles, one sentence each: what, where, and what would work."""

from data.errors import TurretError


class TowerError(TurretError):
    """A tower's settings or inputs that can't be used as they are."""


class BundleError(TowerError):
    """A bundle, or a folder of bundles, that can't be published, opened or trusted as it is."""


class EncodingError(TowerError):
    """A query's features that the user tower can't read.

    `position` is the query's place in the batch, `field` the feature's, `value` what was given.
    """

    def __init__(self, position: int, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.field = field
        self.value = value
