"""A gated recurrent network over the history (GRU4Rec, Hidasi et al. 2016)."""

from typing import Literal

import torch
from torch import Tensor, nn

from turret.data.features.columns import Features
from turret.tower.config import Rate, Width
from turret.tower.kernels.elementwise import Dropout, gather_rows
from turret.tower.layers.packed import PackedHistories, lay_out, step_at
from turret.tower.towers.user import (
    Context,
    Inputs,
    SegmentLength,
    TimeInputs,
    UserTower,
    UserTowerSettings,
    joined,
)


class GruUserConfig(UserTowerSettings):
    """A gated recurrent network over the history (GRU4Rec, Hidasi et al. 2016); `state` is its width."""

    kind: Literal["gru"]
    history_length: SegmentLength = 50
    state: Width = 128
    dropout: Rate = 0.2

    @property
    def context(self) -> Context:
        """Segments: one pass over a segment serves all of its examples."""
        return "causal_segment"


class GruUserTower(UserTower):
    """The state after the newest item and the user's features, through one linear layer.

    Examples of a batch whose windows begin at the same position share one segment, which is read once.
    """

    settings, reader = GruUserConfig, "output"

    def __init__(self, config: GruUserConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, dimension, prepared)
        self.network = nn.GRU(dimension, config.state, batch_first=True)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.state + self.feature_width, dimension)

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Run each segment through the network once, and take each example's state where its window ends."""
        layout = lay_out(histories.starts, histories.ends)
        slots = self.dropout(gather_rows(vectors, layout.positions))
        states = torch.cat([self.network(group)[0].flatten(0, 1) for group in layout.groups(slots)])
        features = self.rows(histories.users) if self.rows else None
        return self._vectors(gather_rows(states, layout.reads), features)

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """User vectors from the state after the last real step."""
        states = self.network(history)[0]
        return self._vectors(step_at(states, length - 1), self.served_features(features))

    def _vectors(self, states: Tensor, features: Tensor | None) -> Tensor:
        vectors: Tensor = self.output(joined(self.dropout(states), features))
        return vectors
