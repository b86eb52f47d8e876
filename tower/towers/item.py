"""The item tower: from an item's id and features to its vector."""

from typing import cast

import torch
from torch import Tensor, nn

from turret.data.features.columns import Features
from turret.tower.errors import TowerError
from turret.tower.layers.feature_layers import feature_rows
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.user import joined, perceptron


class ItemTower(nn.Module):
    """DSSM's item tower (Huang et al. 2013): id, letter trigrams, codes and numbers, then an MLP.

    With the id alone and no hidden layer the vector *is* the row of the id table. Beside features the rows of
    that table begin at zero, as for an item that was never trained on: only its features count.
    """

    def __init__(
        self, config: TowerConfig, item_count: int, prepared: Features, table_device: str | None = None
    ) -> None:
        super().__init__()
        item = config.item
        names, width = item.features, item.feature_width
        self.rows = feature_rows(names, width, prepared, "tower.item.features") if names else None
        if not item.id and self.rows is None:
            raise TowerError(
                f"tower.item.id = false with tower.item.features = {item.features!r} leaves no "
                "input for an item's vector; set id = true, or name features that the prepared data has."
            )
        self.item_count = item_count
        self.table = nn.Embedding(item_count, config.dimension, device=table_device) if item.id else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=config.dimension**-0.5)
            if self.rows is not None:
                nn.init.zeros_(self.table.weight)
        self.id_dropout = item.id_dropout if self.rows else 0.0
        self.mlp: nn.Module = nn.Identity()
        if self.rows is not None or item.hidden:
            width = (config.dimension if item.id else 0) + (self.rows.layers.width if self.rows else 0)
            self.mlp = perceptron(width, item.hidden, config.dimension, item.dropout)

    def forward(self, rows: Tensor) -> Tensor:
        """The vectors of the item `rows` [B]: [B, D], before the scoring's normalisation."""
        ids = None if self.table is None else self.table(rows)
        if ids is not None and self.training and self.id_dropout:
            ids = ids * (torch.rand(len(rows), 1, device=ids.device) >= self.id_dropout)
        vectors: Tensor = self.mlp(joined(ids, None if self.rows is None else self.rows(rows)))
        return vectors

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The first layer of the MLP; features are its last columns."""
        assert self.rows is not None
        layer = cast(nn.Linear, self.mlp.get_submodule("0"))
        return layer, layer.in_features - self.rows.layers.width
