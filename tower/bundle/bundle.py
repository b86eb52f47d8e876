"""Bundles, which are opened whole or refused."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from turret.data.errors import DataError
from turret.data.vocabulary import ID_LENGTH, Vocabulary
from turret.tower.catalog.catalog import Catalog
from turret.tower.errors import BundleError
from turret.tower.format.checksums import check_files, check_parts
from turret.tower.format.manifest import (
    INDEX,
    ITEM_FEATURES,
    ITEM_MAP,
    ITEM_TOWER,
    ITEM_WEIGHTS,
    Manifest,
    manifest_digest,
    read_manifest,
)
from turret.tower.format.safe_open import read_regular, size_of
from turret.tower.format.sections import map_array
from turret.tower.index.index import open_index
from turret.tower.inference.encoder import TOWER_BYTES, Encoder, ItemEncoder
from turret.tower.inference.feature_inputs import read_features


class Bundle:
    """An opened bundle: user tower, item vectors, index, vocabulary and catalog, all of one model.

    `vectors` is float32 [N, D], memory-mapped; `popularity` int64 [N], the training events of each item;
    `item_weights` float64 [N], the sums of their weights by age, or `popularity` if they weigh alike; and
    `usual_gaps` float32 [N], the usual seconds until a user takes it again, 0 where that is unknown.
    `item_encoder` is None where the item tower reads ids alone. `digest`, set by `open`, is the SHA-256 of
    its `manifest.json`.
    """

    digest: str

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        count, dimension = manifest.item_count, manifest.dimension
        self.vectors: NDArray[np.float32] = map_array(
            folder / "item_vectors.npy", "float32", (count, dimension)
        )
        self.popularity: NDArray[np.int64] = map_array(folder / "popularity.npy", "int64", (count,))
        self.item_weights: NDArray[np.float64] | NDArray[np.int64] = self.popularity
        if ITEM_WEIGHTS in manifest.files:
            self.item_weights = map_array(folder / ITEM_WEIGHTS, "float64", (count,))
        self.usual_gaps: NDArray[np.float32] = map_array(folder / "usual_gaps.npy", "float32", (count,))
        self.vocabulary = _vocabulary(folder, manifest)
        self.catalog = Catalog.load(folder, count)
        self.user_features = read_features(folder / "user_features.json")
        check_parts(
            manifest, self.vectors, self.popularity, self.item_weights, self.usual_gaps, len(self.vocabulary)
        )
        self.index = open_index(folder / INDEX, self.vectors, manifest.index)
        model = read_regular(folder / "user_tower.onnx", TOWER_BYTES)
        self.encoder = Encoder(model, self.vectors, self.user_features, manifest)
        self.item_encoder: ItemEncoder | None = None
        if ITEM_TOWER in manifest.files:
            model = read_regular(folder / ITEM_TOWER, TOWER_BYTES)
            self.item_encoder = ItemEncoder(model, dimension, read_features(folder / ITEM_FEATURES))

    @classmethod
    def open(cls, folder: Path, verify: bool = True, content: str | None = None) -> "Bundle":
        """Open the bundle in `folder`; `verify` compares every file with its checksum first.

        `content` is the SHA-256 that its `manifest.json` must have. Raises BundleError when anything is
        missing, damaged, not finite or of another model, or when the folder was replaced while it was opened.
        The recorded queries are checked by `tower.bundle.golden.check_golden`.
        """
        digest = manifest_digest(folder)
        if content is not None and content != digest:
            raise BundleError(
                f"the folder of version {folder.name} does not hold the files that were activated: its "
                f"manifest has SHA-256 {digest[:12]}... where {content[:12]}... was; activate it by its "
                "name, which checks it",
                "checksum",
            )
        manifest = read_manifest(folder)
        if verify:
            check_files(folder, manifest)
        try:
            bundle = cls(folder, manifest)
            bundle.digest = digest
            bundle.check_unchanged()
            return bundle
        except OSError as error:
            raise BundleError(f"{error.filename} can't be read: {error.strerror}; copy it again") from None
        except (DataError, ValidationError, MemoryError, RecursionError) as error:
            reason = str(error) or "the memory is full"
            raise BundleError(f"the bundle {folder} can't be opened: {reason}") from None

    def item_map(self) -> NDArray[np.uint16] | None:
        """Map the item vectors in the plane, [N, 2]: 0 .. 65535 span the sides of a square.

        None for a bundle without a map. Raises BundleError when the map doesn't fit.
        """
        if ITEM_MAP not in self.manifest.files:
            return None
        return map_array(self.folder / ITEM_MAP, "uint16", (self.manifest.item_count, 2))

    def check_unchanged(self) -> None:
        """Raise BundleError when another version has taken the folder's place since `open` began."""
        if manifest_digest(self.folder) != self.digest:
            raise BundleError(
                f"files of version {self.folder.name} changed since it was opened; try again when "
                "they are complete",
                "checksum",
            )


def _vocabulary(folder: Path, manifest: Manifest) -> Vocabulary:
    path = folder / "vocabulary.json"
    # Each character takes at most six bytes of JSON, and an id has quotes and a comma.
    if size_of(path) > 100 + manifest.item_count * (6 * ID_LENGTH + 4):
        raise BundleError(f"{path} is too large for {manifest.item_count} ids; copy it again")
    return Vocabulary.load(path)
