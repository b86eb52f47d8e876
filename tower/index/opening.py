"""The index of a bundle, built or opened by the registry entry of its kind."""

from pathlib import Path
from pkgutil import resolve_name

import numpy as np
from numpy.typing import NDArray

from turret.tower.format.index_kinds import INDEX_KINDS
from turret.tower.format.index_settings import IndexSettings
from turret.tower.index.index import Index


def index_class(settings: IndexSettings) -> type[Index]:
    """The class behind a kind of index."""
    made: type[Index] = resolve_name(INDEX_KINDS[settings.kind].index)
    return made


def build_index(
    vectors: NDArray[np.float32], settings: IndexSettings, users: NDArray[np.float32] | None = None
) -> Index:
    """Index `vectors` [N, D] as `settings` say; row n is vector n."""
    return index_class(settings).build(vectors, settings, users)


def open_index(path: Path, vectors: NDArray[np.float32], settings: IndexSettings) -> Index:
    """Open the index over a bundle's vectors [N, D]. Raises BundleError when `path` doesn't fit."""
    return index_class(settings).load(path, vectors, settings)
