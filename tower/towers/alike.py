"""Towers of queries and items that begin as one; see `QueryConfig.start`."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turret.data.features.columns import Bag, Features
from turret.data.ranges import distinct
from turret.tower.layers.feature_layers import FeatureLayers, VectorLayer
from turret.tower.towers.model import ItemTower, TwoTowers
from turret.tower.towers.query import QueryTower


@torch.no_grad()
def begin_alike(model: TwoTowers, items: Features) -> None:
    """Let both towers begin with the same vectors of grams and ready vectors; see `QueryConfig.start`.

    Only features as wide as the vectors are changed. Grams are drawn from torch's generator.
    """
    dimension, drawn = model.config.dimension, dict[tuple[str, ...], Tensor]()
    towers = [model.item.rows, model.user.rows]
    for layers in (rows.layers for rows in towers if rows is not None):
        for position, feature in enumerate(layers.features):
            table = layers.tables[str(position)] if feature.of.is_content else None
            if isinstance(table, nn.EmbeddingBag) and table.embedding_dim == dimension:
                if feature.values not in drawn:
                    weights = torch.tensor(inverse_frequencies(items, feature.values), dtype=torch.float32)
                    drawn[feature.values] = torch.randn(feature.size, dimension) * weights[:, None]
                table.weight.copy_(drawn[feature.values] / math.sqrt(dimension))
            elif isinstance(table, VectorLayer):
                table.linear.weight.copy_(
                    kept_directions(feature.width, dimension) / math.sqrt(feature.width)
                )
    for tower in (model.user, model.item):
        assert isinstance(tower, QueryTower | ItemTower)
        first = tower.mlp[0] if isinstance(tower.mlp, nn.Sequential) else None
        if tower.rows is not None and isinstance(first, nn.Linear) and first.out_features == dimension:
            _pass_on(first, tower.rows.layers, dimension)


def kept_directions(width: int, dimension: int) -> Tensor:
    """A matrix [dimension, width] that keeps inner products: the identity, or a projection of wider vectors.

    The projection is random, and the same for each width.
    """
    if width <= dimension:
        return torch.eye(dimension, width)
    drawn = torch.randn(width, dimension, generator=torch.Generator().manual_seed(0))
    directions: Tensor = torch.linalg.qr(drawn)[0].T
    return directions * math.sqrt(width / dimension)


def _pass_on(layer: nn.Linear, layers: FeatureLayers, dimension: int) -> None:
    """Let a linear layer begin as the sum of its inputs that are as wide as its output."""
    layer.bias.zero_()
    layer.weight.zero_()
    start = layer.in_features - layers.width
    if start == dimension:  # ids
        layer.weight[:, :start] = torch.eye(dimension)
    for feature, width in zip(layers.features, layers.widths, strict=True):
        if feature.of.is_content:
            layer.weight[:, start : start + dimension] = torch.eye(dimension)
        start += width


def inverse_frequencies(items: Features, values: tuple[str, ...]) -> NDArray[np.float64]:
    """The weight log(1 + (N - n + 1/2) / (n + 1/2)) of each gram that n of N items have: float64 [V + 1].

    Code 0 stands for no gram and has weight 0.

    Source: Robertson & Zaragoza 2009, eq. 3.6, with 1 added as in Lucene.
    """
    texts = [feature for feature in items.features if feature.kind == "text" and feature.values == values]
    counts = np.zeros(len(values) + 1)
    for feature in texts:
        column = items.columns[feature.name]
        assert isinstance(column, Bag)
        rows = np.repeat(np.arange(items.count), np.diff(column.offsets))
        pairs = distinct(rows * np.int64(len(counts)) + column.values)
        counts += np.bincount(pairs % len(counts), minlength=len(counts))
    total = items.count * max(len(texts), 1)
    weights = np.log1p((total - counts + 0.5) / (counts + 0.5))
    weights[0] = 0.0
    return weights
