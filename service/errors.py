"""What a user of `service` can get wrong, one sentence each: what, where, and what would work."""

from data.errors import TurretError


class ServiceError(TurretError):
    """A setting or a request that the service can't act on."""
