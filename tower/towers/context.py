"""The context of a request, such as the device, beside the vector of its user."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from turret.tower.layers.feature_layers import FeatureRows
from turret.tower.towers.user import joined, perceptron

# The share of examples whose context training hides, so that a request without one has a good answer.
UNKNOWN_SHARE = 0.1
UNKNOWN_ROW = 0
"""The row of the unknown context in prepared data."""


class ContextLayer(nn.Module):
    """Adds to a user's vector what the context of the request changes, by a perceptron of both.

    It reads the finished vector, so that one pass over a history serves examples of any contexts. Its last
    layer begins at zero: at first, vectors are those of a tower that reads no context.
    """

    def __init__(self, rows: FeatureRows, dimension: int) -> None:
        super().__init__()
        self.rows = rows
        self.mlp = perceptron(dimension + rows.layers.width, (dimension,), dimension, 0.0)
        last = cast(nn.Linear, self.mlp[-1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, vectors: Tensor, contexts: Tensor | None) -> Tensor:
        """Change `vectors` [B, D] by the prepared rows `contexts` [B]; None if all are unknown."""
        if contexts is None:
            contexts = torch.full((len(vectors),), UNKNOWN_ROW, device=vectors.device)
        elif self.training:
            # The draw is on the CPU for every device, so that seeding torch's generator reproduces it.
            is_hidden = (torch.rand(len(contexts)) < UNKNOWN_SHARE).to(contexts.device)
            contexts = contexts.masked_fill(is_hidden, UNKNOWN_ROW)
        return self._changed(vectors, self.rows(contexts))

    def served(self, vectors: Tensor, features: Mapping[str, Tensor]) -> Tensor:
        """Change `vectors` [B, D] by the inputs of a request, as `FeatureLayers.forward` takes them."""
        return self._changed(vectors, self.rows.layers(features))

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The linear layer that reads the features, and their first column in its input."""
        first = cast(nn.Linear, self.mlp[0])
        return first, first.in_features - self.rows.layers.width

    def _changed(self, vectors: Tensor, features: Tensor) -> Tensor:
        changed: Tensor = vectors + self.mlp(joined(vectors, features))
        return changed
