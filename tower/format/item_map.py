"""The item vectors in the plane, which a bundle may have: `item_map.npy`, uint16 [N, 2].

0 .. 65535 span the sides of a square. Recommendations don't need it: the manifest lists the file, and no
more.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turret.tower.format.manifest import Manifest
from turret.tower.format.sections import map_array

MAP_FILE = "item_map.npy"
ItemMap = NDArray[np.uint16]
_LARGEST = np.iinfo(np.uint16).max


def open_item_map(folder: Path, manifest: Manifest) -> ItemMap | None:
    """Map the file of a bundle; None without one. Raises BundleError."""
    if MAP_FILE not in manifest.files:
        return None
    points: ItemMap = map_array(folder / MAP_FILE, "uint16", (manifest.item_count, 2))
    return points


def quantised(points: NDArray[np.floating]) -> ItemMap:
    """Scale points [N, 2] to the square, both axes alike and the middle of their range in its centre."""
    low, high = points.min(axis=0), points.max(axis=0)
    side = float((high - low).max()) or 1.0
    scaled = 0.5 + (points - (low + high) / 2) / side
    square: ItemMap = np.rint(scaled * _LARGEST).astype(np.uint16)
    return square
