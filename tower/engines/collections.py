"""Collections of a folder's versions: their names, and whether one is complete."""

import re
import uuid
from contextlib import closing
from pathlib import Path

from turret.data.errors import without_credentials
from turret.tower.engines.access import engine_url
from turret.tower.engines.engine import Engine, Limits, open_engine
from turret.tower.errors import BundleError, EngineError
from turret.tower.format.index_settings import EngineSettings
from turret.tower.format.listing import versions
from turret.tower.format.manifest import Manifest, read_manifest

NAMESPACE_FILE = ".engine_namespace"
_PATTERN = re.compile("turret_[0-9a-f]{12}")


def namespace(bundles: Path) -> str:
    """The prefix of the names of this folder's collections, drawn at random with the first.

    Folders that share an engine never touch each other's collections; a copy of a folder has to begin without
    the file, as each would drop collections that the other one needs.
    """
    path = bundles / NAMESPACE_FILE
    if not path.exists():
        path.write_text(f"turret_{uuid.uuid4().hex[:12]}\n", encoding="ascii")
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not _PATTERN.fullmatch(text):
        raise BundleError(
            f"{path} holds {text[:50]!r}, which names no collections; write back its content, such as "
            "turret_0123456789ab, or delete it to begin with new collections"
        )
    return text


def collection_name(bundles: Path, version: str) -> str:
    """A new name for the collection of a version; a later version of this name gets another."""
    readable = re.sub("[^A-Za-z0-9]", "_", version)
    return f"{namespace(bundles)}_{readable}_{uuid.uuid4().hex[:8]}"


def clear(bundles: Path, engine: Engine) -> list[str]:
    """Drop the collections of deleted versions and of publications that died, and return their names.

    The caller holds the folder's publication lock, so that none is being loaded. Raises BundleError where a
    manifest can't be read, since its version may need any of them.
    """
    indexes = [read_manifest(bundles / one.version).index for one in versions(bundles)]
    kept = {one.collection for one in indexes if isinstance(one, EngineSettings)}
    dropped = [name for name in engine.collections(f"{namespace(bundles)}_") if name not in kept]
    for name in dropped:
        engine.drop(name)
    return dropped


# The lock of activations is held meanwhile.
_LIMITS = Limits(search=5.0, load=10.0)


def check_loaded(manifest: Manifest) -> None:
    """Raise BundleError unless the engine of a version, if it has one, holds its whole collection."""
    settings = manifest.index
    if not isinstance(settings, EngineSettings):
        return
    try:
        with closing(open_engine(engine_url(settings.url), _LIMITS)) as engine:
            found = engine.count(settings.collection)
    except EngineError as error:
        raise BundleError(str(error)) from None
    if found != manifest.item_count:
        held = "no collection" if found is None else f"{found:,} items in"
        raise BundleError(
            f"{without_credentials(engine_url(settings.url))} holds {held} {settings.collection}, where "
            f"{manifest.item_count:,} items are needed; publish it there with `turret publish --engine URL`"
        )
