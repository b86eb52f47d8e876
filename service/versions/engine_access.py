"""The access to vector engines that the settings of a service describe."""

from turret.service.settings import Settings
from turret.tower.engines.access import Access


def engine_access(settings: Settings) -> Access:
    """Translate the settings."""
    return Access(
        settings.engine,
        settings.engine_seconds,
        settings.breaker_failures,
        settings.breaker_seconds,
        settings.engine_fallback,
    )
