"""Vectors of the items without an event, by the item tower that encodes new items in the service."""

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.prepared import ColdItems
from turret.tower.inference.feature_inputs import FeatureInputs
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import ServedItemTower

# Items that pass the tower at once.
_BLOCK = 8192


@torch.no_grad()
def cold_vectors(model: TwoTowers, items: ColdItems) -> NDArray[np.float32] | None:
    """Encode `items` as scored vectors [C, D]; None for no items, or a tower that reads no features."""
    if model.item.rows is None or not items.ids:
        return None
    served = ServedItemTower(model).eval().cpu()
    inputs = FeatureInputs(served.features, "item")
    rows = [dict(zip(items.features, row, strict=True)) for row in zip(*items.features.values(), strict=True)]
    blocks = []
    for first in range(0, len(rows), _BLOCK):
        given = inputs.inputs([inputs.readable(row) for row in rows[first : first + _BLOCK]])
        blocks.append(served(*(torch.from_numpy(column) for column in given.values())).numpy())
    return np.concatenate(blocks)
