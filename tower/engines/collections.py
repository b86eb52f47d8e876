"""The names of a folder's collections in an engine, and the removal of those that no version needs."""

import re
import uuid
from pathlib import Path

from turret.data.files.locks import locked
from turret.tower.engines.access import engine_url
from turret.tower.engines.engine import Engine
from turret.tower.engines.opening import open_engine
from turret.tower.errors import BundleError
from turret.tower.format.engine_settings import EngineSettings
from turret.tower.format.listing import versions
from turret.tower.format.manifest import read_manifest

NAMESPACE_FILE = ".engine_namespace"
_PATTERN = re.compile("turret_[0-9a-f]{12}")


def namespace(bundles: Path) -> str:
    """The prefix of the names of this folder's collections, drawn at random with the first.

    Folders that share an engine never touch each other's collections.
    """
    path = bundles / NAMESPACE_FILE
    if not path.exists():
        path.write_text(f"turret_{uuid.uuid4().hex[:12]}\n", encoding="ascii")
    text = path.read_text(encoding="ascii", errors="replace").strip()
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


def alias_name(bundles: Path) -> str:
    """The alias of the live version."""
    return f"{namespace(bundles)}_live"


def needed(bundles: Path, engine: Engine) -> set[str]:
    """The collections of the versions in the folder, and the one that the alias names.

    Raises BundleError where a manifest can't be read, since its version may need any of them.
    """
    names = {engine.pointed(alias_name(bundles)) or ""}
    for summary in versions(bundles):
        settings = read_manifest(bundles / summary.version).index
        if isinstance(settings, EngineSettings):
            names.add(settings.collection)
    return names


def drop_unneeded(bundles: Path, url: str) -> list[str]:
    """Drop the collections of deleted versions from the engine that a manifest knows as `url`.

    Waits for a publication that runs. Raises BundleError and EngineError.
    """
    engine = open_engine(engine_url(url))
    try:
        with locked(bundles / NAMESPACE_FILE):
            return clear(bundles, engine)
    except OSError as error:
        raise BundleError(f"{bundles / NAMESPACE_FILE} can't be locked: {error.strerror}") from None
    finally:
        engine.close()


def clear(bundles: Path, engine: Engine) -> list[str]:
    """Drop the collections of deleted versions and of publications that died, and return their names.

    The caller holds the folder's publication lock, so that none is being loaded.
    """
    kept = needed(bundles, engine)
    dropped = [name for name in engine.collections(f"{namespace(bundles)}_") if name not in kept]
    for name in dropped:
        engine.drop(name)
    return dropped
