"""Vector engines: the access that the settings describe, and the engine of a version that becomes live."""

import logging

from turret.service.settings import Settings
from turret.tower.engines.access import Access, current_access
from turret.tower.engines.live import check_loaded, live_alias, move_alias
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.manifest import Manifest

_log = logging.getLogger("turret.activation")


def engine_access(settings: Settings) -> Access:
    """Translate the settings."""
    return Access(
        settings.engine,
        settings.engine_seconds,
        fallback=settings.engine_fallback,
    )


def switch_engine(live: Manifest, replaced: Manifest | None) -> str | None:
    """Move the alias in the engine of `live` to its collection; return a warning where that is impossible.

    An activation is refused by the gate for an incomplete collection, a rollback is not: the version that it
    leaves is worse than the fallback, which answers as long as the engine doesn't. Nothing but other programs
    reads the alias: searches of the service name the collection.
    """
    _log_alias_left(live, replaced)
    try:
        check_loaded(live)
    except BundleError as error:
        fallback = current_access().fallback
        return _warned(
            f"the fallback ({fallback}) answers for {live.version}, which its engine doesn't hold: {error}"
        )
    try:
        move_alias(live)
    except EngineError as error:
        return _warned(f"the engine's alias names another version than {live.version}: {error}")
    return None


def _warned(message: str) -> str:
    _log.warning("%s", message)
    return message


def _log_alias_left(live: Manifest, replaced: Manifest | None) -> None:
    """Say so where the alias of the replaced version stays, as the new one is elsewhere."""
    left = live_alias(replaced) if replaced else None
    if replaced and left and left != live_alias(live):
        _log.warning(
            "%s is not on the engine at %s: the alias %s goes on naming %s, the last live version there",
            live.version,
            *left,
            replaced.version,
        )
