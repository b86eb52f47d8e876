"""The item vectors in the plane, which a bundle may have: `item_map.<method>.npy`, uint16 [N, 2].

0 .. 65535 span the sides of a square. Recommendations don't need it: the manifest lists the file, and no
more.
"""

from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from turret.tower.format.manifest import Manifest
from turret.tower.format.sections import map_array

Method = Literal["pca", "umap"]
_LARGEST = np.iinfo(np.uint16).max


class ItemMap(NamedTuple):
    """A point for each row, uint16 [N, 2], and the method that computed it."""

    method: Method
    points: NDArray[np.uint16]


def map_file(method: Method) -> str:
    """The name of the file of a map."""
    return f"item_map.{method}.npy"


def open_item_map(folder: Path, manifest: Manifest) -> ItemMap | None:
    """Map the file of a bundle; None without one, as in bundles of earlier releases. Raises BundleError."""
    methods: tuple[Method, ...] = get_args(Method)
    for method in methods:
        if map_file(method) in manifest.files:
            points = map_array(folder / map_file(method), "uint16", (manifest.item_count, 2))
            return ItemMap(method, points)
    return None


def quantised(method: Method, points: NDArray[np.floating]) -> ItemMap:
    """Scale points [N, 2] to the square, both axes alike and the middle of their range in its centre."""
    low, high = points.min(axis=0), points.max(axis=0)
    side = float((high - low).max()) or 1.0
    scaled = 0.5 + (points - (low + high) / 2) / side
    return ItemMap(method, np.rint(scaled * _LARGEST).astype(np.uint16))
