"""Bundles: opened as a whole, refused as a whole."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from data.arrays import open_array
from data.errors import DataError
from data.features import Feature
from data.vocabulary import Vocabulary
from tower.catalog import Catalog
from tower.encoder import Encoder
from tower.errors import BundleError
from tower.golden import check_golden
from tower.indexes.opening import INDEX, open_index
from tower.listing import versions
from tower.manifest import Manifest, check_files, read_manifest
from tower.pointer import check_version, point
from tower.soundness import check_parts

_FEATURES = TypeAdapter(tuple[Feature, ...])


class Bundle:
    """An opened bundle: the user tower, the item vectors, the index and the names, all of one model.

    `vectors` is float32 [N, D], memory-mapped; `popularity` int64 [N], the training events of each item.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.vectors: NDArray[np.float32] = open_array(folder / "item_vectors.npy", "float32")
        self.popularity: NDArray[np.int64] = open_array(folder / "popularity.npy", "int64")
        self.vocabulary = Vocabulary.load(folder / "vocabulary.json")
        self.catalog = Catalog.load(folder / "catalogue.json", manifest.item_count)
        self.user_features = _FEATURES.validate_json((folder / "user_features.json").read_bytes())
        check_parts(manifest, self.vectors, self.popularity, len(self.vocabulary))
        self.index = open_index(folder / INDEX, self.vectors, manifest.index)
        model = (folder / "user_tower.onnx").read_bytes()
        self.encoder = Encoder(
            model, self.vectors, manifest.history_length, self.user_features, manifest.reads_times
        )

    @property
    def fields(self) -> dict[str, list[Any]]:
        """The catalogue's fields: name -> one value a row."""
        return self.catalog.fields

    @classmethod
    def open(cls, folder: Path, verify: bool = True) -> "Bundle":
        """Open the bundle in `folder`; `verify` compares every file with its checksum first.

        Raises BundleError when anything is missing, damaged, not finite or of another model. Whether it also
        answers its recorded queries, `tower.golden.check_golden` tells.
        """
        manifest = read_manifest(folder)
        if verify:
            check_files(folder, manifest)
        try:
            return cls(folder, manifest)
        except OSError as error:
            raise BundleError(f"{error.filename} can't be read: {error.strerror}; copy it again") from None
        except (DataError, ValidationError, MemoryError, RecursionError) as error:
            raise BundleError(f"the bundle {folder} can't be opened: {error}") from None


def load(root: Path, version: str) -> Bundle:
    """Open `<root>/<version>` with everything that can be checked: checksums, shapes, recorded queries.

    Raises BundleError with the reason when it can't be served.
    """
    check_version(version)
    if not (root / version).is_dir():
        known = ", ".join(one.version for one in versions(root)[-10:]) or "none"
        raise BundleError(f"there is no version {version!r} in {root}; there are: {known}")
    bundle = Bundle.open(root / version)
    if bundle.manifest.version != version:
        raise BundleError(f"{root / version} holds version {bundle.manifest.version!r}; rename it to that")
    check_golden(bundle)
    return bundle


def activate(root: Path, version: str) -> None:
    """Make `version` the one that is served, after it has passed every check of `load`."""
    load(root, version)
    point(root, version)
