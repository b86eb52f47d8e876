"""A user tower that weighs the items of a history by a score of each item before it takes their mean."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from turret.data.features import Features
from turret.tower.config import Width
from turret.tower.kernels.elementwise import Dropout
from turret.tower.layers.packed import PackedHistories, gather_rows, step_at
from turret.tower.layers.windows import weighted_means
from turret.tower.towers.user import UserTower, UserTowerSettings, last_columns, perceptron

# The bound of attention scores: weights then differ by e^16 at most, which leaves nine digits of double
# precision in a difference of running sums.
LARGEST_SCORE = 8.0


class AttentiveUserConfig(UserTowerSettings):
    """A mean over the history, weighted by a score of each item alone (Lin et al. 2017), then an MLP.

    `attention` is the width of the layer that scores items.
    """

    kind: Literal["attentive"]
    attention: Width = 64
    hidden: tuple[Width, ...] = (128,)


class AttentiveUserTower(UserTower):
    """The mean of a history's item vectors, weighted by scores of the items alone (Lin et al. 2017, eq. 5).

    Weights are independent of the window, so all windows come from two running sums, as plain means do. The
    newest item's vector is concatenated to the weighted mean.
    """

    def __init__(self, config: AttentiveUserConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, prepared)
        self.attention = nn.Sequential(
            nn.Linear(dimension, config.attention), nn.Tanh(), nn.Linear(config.attention, 1, bias=False)
        )
        self.dropout = Dropout(config.dropout)
        self.mlp = perceptron(2 * dimension + self.feature_width, config.hidden, dimension, config.dropout)

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """The weighted means of all windows in one pass."""
        means = weighted_means(vectors, self._weights(vectors), histories)
        last = gather_rows(vectors, histories.ends - 1)
        return self._vectors(means, last, self.row_features(histories))

    def served(
        self,
        history: Tensor,
        length: Tensor,
        features: Mapping[str, Tensor],
        times: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """The weighted mean of the real steps."""
        real = torch.arange(history.shape[1], device=history.device) < length.unsqueeze(1)
        weights = self._weights(history) * real.unsqueeze(2)
        means = (history * weights).sum(dim=1) / weights.sum(dim=1)
        return self._vectors(means, step_at(history, length - 1), self.served_features(features))

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The first layer of the MLP; features are its last columns."""
        return last_columns(self.mlp[0], self.feature_width)

    def _weights(self, vectors: Tensor) -> Tensor:
        """[..., D] to [..., 1]."""
        return (LARGEST_SCORE * torch.tanh(self.attention(vectors) / LARGEST_SCORE)).exp()

    def _vectors(self, means: Tensor, last: Tensor, features: Tensor | None) -> Tensor:
        inputs = [means, last] if features is None else [means, last, features]
        vectors: Tensor = self.mlp(self.dropout(torch.cat(inputs, dim=1)))
        return vectors
