"""Vectors of items for a bundle: of the catalog, of items without an event, and in the plane."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turret.data.prepared import ColdItems
from turret.tower.config import ScoringConfig
from turret.tower.format.item_map import ItemMap, quantised
from turret.tower.inference.feature_inputs import FeatureInputs
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import ServedItemTower

# Items that pass the tower at once, by their ids and by their features; and vectors projected at once.
_BLOCK, _ENCODED, _PROJECTED = 65_536, 8192, 16_384


@torch.no_grad()
def mapped_vectors(
    model: TwoTowers, path: Path, cold: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Write the scored vectors of the catalog, and behind them `cold` [C, D], to the `.npy` file `path`.

    Returns them [N + C, D] mapped.
    """
    count = model.item.item_count
    first = model.item_vectors(torch.arange(min(count, _BLOCK))).numpy()
    form = {
        "descr": np.lib.format.dtype_to_descr(first.dtype),
        "fortran_order": False,
        "shape": (count + (0 if cold is None else len(cold)), first.shape[1]),
    }
    # By `write`, which raises OSError on a full disk; a write to mapped memory ends the process by SIGBUS.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, form)
        file.write(np.ascontiguousarray(first).data)
        for start in range(_BLOCK, count, _BLOCK):
            rows = torch.arange(start, min(count, start + _BLOCK))
            file.write(np.ascontiguousarray(model.item_vectors(rows).numpy()).data)
        if cold is not None:
            file.write(np.ascontiguousarray(cold).data)
    # Writable, as torch warns of tensors that are not; nothing writes to it.
    vectors: NDArray[np.float32] = np.load(path, mmap_mode="r+")
    return vectors


@torch.no_grad()
def cold_vectors(model: TwoTowers, items: ColdItems) -> NDArray[np.float32] | None:
    """Encode items without an event as scored vectors [C, D], as the service encodes new items.

    None for no items, or a tower that reads no features.
    """
    if model.item.rows is None or not items.ids:
        return None
    rows = [dict(zip(items.features, row, strict=True)) for row in zip(*items.features.values(), strict=True)]
    parts = (rows[first : first + _ENCODED] for first in range(0, len(rows), _ENCODED))
    return np.concatenate([encoded_by_features(model, part)[1] for part in parts])


@torch.no_grad()
def encoded_by_features(
    model: TwoTowers, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], NDArray[np.float32]]:
    """The features that the served item tower reads of these fields, and its scored vectors [R, D]."""
    served = ServedItemTower(model).eval().cpu()
    inputs = FeatureInputs(served.features, "item")
    read = [inputs.readable(row) for row in rows]
    vectors = served(*(torch.from_numpy(column) for column in inputs.inputs(read).values()))
    return read, vectors.numpy()


def project_items(vectors: NDArray[np.float32], scoring: ScoringConfig) -> ItemMap:
    """Project item vectors [N, D] to the plane; a bias in the last column is left out."""
    return quantised(principal_components(vectors[:, :-1] if scoring.item_bias else vectors))


def principal_components(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The coordinates [N, 2] along the two directions of the largest variance.

    By the eigenvectors of the covariance matrix [D, D]; each axis points so that its largest weight is
    positive. One dimension or one item leaves the missing coordinates 0. Sums are in float64, and so are
    `_PROJECTED` vectors at a time.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((len(mean), len(mean)))
    for block in _centred(vectors, mean):
        covariance += block.T @ block
    _, axes = np.linalg.eigh(covariance)
    best = axes[:, ::-1][:, :2]
    signs = np.sign(best[np.abs(best).argmax(axis=0), np.arange(best.shape[1])])
    directions = best * np.where(signs == 0, 1.0, signs)
    points = np.concatenate([block @ directions for block in _centred(vectors, mean)])
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _centred(vectors: NDArray[np.floating], mean: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    for first in range(0, len(vectors), _PROJECTED):
        yield vectors[first : first + _PROJECTED] - mean
