"""The collection of a version in its engine: whether it is complete, and the alias of the live one."""

from collections.abc import Iterator
from contextlib import contextmanager

from turret.data.errors import without_credentials
from turret.tower.engines.access import engine_url
from turret.tower.engines.engine import Engine, ended_after
from turret.tower.engines.opening import Limits, open_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.manifest import Manifest

# The lock of activations is held meanwhile.
_LIMITS = Limits(search=5.0, load=10.0)


def check_loaded(manifest: Manifest) -> None:
    """Raise BundleError unless the engine of a version, if it has one, holds its whole collection."""
    settings = manifest.index
    if not isinstance(settings, EngineSettings):
        return
    try:
        with _opened(settings) as engine:
            found = engine.count(settings.collection)
    except EngineError as error:
        raise BundleError(str(error)) from None
    if found != manifest.item_count:
        held = "no collection" if found is None else f"{found:,} items in"
        raise BundleError(
            f"{without_credentials(engine_url(settings.url))} holds {held} {settings.collection}, where "
            f"{manifest.item_count:,} items are needed; publish it there with `turret publish --engine URL`"
        )


def move_alias(manifest: Manifest) -> None:
    """Make the alias of a version's folder name its collection, where it has one. Raises EngineError."""
    settings = manifest.index
    if isinstance(settings, EngineSettings):
        with _opened(settings) as engine:
            engine.point(settings.alias, settings.collection)


@contextmanager
def _opened(settings: EngineSettings) -> Iterator[Engine]:
    engine = open_engine(engine_url(settings.url), _LIMITS)
    try:
        with ended_after(2 * _LIMITS.load, engine.close):
            yield engine
    finally:
        engine.close()
