"""Item vectors of untrained items from their features, by the exported item tower."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.data.features import Feature
from turret.tower.errors import BundleError, EncodingError
from turret.tower.format.manifest import ITEM_FEATURES, ITEM_TOWER, Manifest
from turret.tower.format.safe_open import read_regular
from turret.tower.inference.encoder import TOWER_BYTES, Session
from turret.tower.inference.feature_inputs import FeatureInputs, read_features

# Items that pass the tower at once: ten thousand at a time would need hundreds of megabytes in between.
_AT_ONCE = 1024


class ItemEncoder:
    """The item tower as ONNX, run on one thread.

    Its inputs are one `feature_<name>` for each item feature, as `FeatureInputs` has them; its output is
    `item_vector` [B, D], scored as the catalog's vectors are (of length 1 for the cosine, the bias last),
    for items whose ids were never trained on.

    Raises BundleError when `model` is not such a tower.
    """

    def __init__(self, model: bytes, dimension: int, features: Sequence[Feature]) -> None:
        self._dimension = dimension
        self._features = FeatureInputs(features, "item")
        self._session = Session(model, "item_tower.onnx", "item_vector")
        if not features:
            raise BundleError(
                "item_tower.onnx is in a bundle without item features; export the bundle again", "parts"
            )
        self._session.check(self._features.input_names)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that the tower reads."""
        return self._features.features

    def encode(self, items: Sequence[Mapping[str, object]]) -> NDArray[np.float32]:
        """Return the vectors [B, D] of B items by their raw features; one that is not given is unknown.

        Raises EncodingError for a feature that the tower doesn't have or a value that doesn't fit it,
        BundleError for a tower that can't be run on its own inputs.
        """
        if not items:
            return np.empty((0, self._dimension), dtype=np.float32)
        starts = range(0, len(items), _AT_ONCE)
        return np.concatenate([self._encode(start, items[start : start + _AT_ONCE]) for start in starts])

    def readable(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return those of an item's features that this tower reads, for items sent to another version."""
        return self._features.readable(given)

    def _encode(self, start: int, items: Sequence[Mapping[str, object]]) -> NDArray[np.float32]:
        try:
            inputs = self._features.inputs(items)
        except EncodingError as error:
            raise EncodingError(start + error.position, error.field, error.value, str(error)) from None
        vectors = self._session.run(inputs, (len(items), self._dimension))
        for position in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
            message = "the item tower gives no finite vector for these features; send more usual values"
            raise EncodingError(start + int(position), "features", None, message)
        return vectors


def open_item_encoder(folder: Path, manifest: Manifest) -> ItemEncoder | None:
    """Open the item tower of the bundle in `folder`; None where it has none: it reads ids alone.

    Raises BundleError, OSError or ValidationError for invalid files.
    """
    if ITEM_TOWER not in manifest.files:
        return None
    model = read_regular(folder / ITEM_TOWER, TOWER_BYTES)
    return ItemEncoder(model, manifest.dimension, read_features(folder / ITEM_FEATURES))
