"""User towers of means: YouTubeDNN's, and a tower that weighs the items of a history by a score of each."""

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from turret.data.features.columns import Features
from turret.tower.config import Rate, Width
from turret.tower.kernels.elementwise import Dropout, gather_rows
from turret.tower.layers.attention import AttentionPooling
from turret.tower.layers.packed import PackedHistories, step_at
from turret.tower.layers.windows import weighted_means, window_means
from turret.tower.towers.user import (
    Context,
    Inputs,
    TimeInputs,
    UserTower,
    UserTowerSettings,
    joined,
    perceptron,
)


class PooledUserConfig(UserTowerSettings):
    """YouTubeDNN's user tower (Covington et al. 2016, section 3.2): a mean over the history, then an MLP.

    `last_item` concatenates the newest item's vector to the mean. `example_age` feeds the age of an example
    at the end of training, as a share of the training period; zero when served. Without `ordered` a history
    is a set: the tower reads all other items of the user, later ones too. Without `leave_out` it also reads
    the item to predict, so that a user has one vector for all targets. `item_dropout` is the share of items
    that training leaves out of each mean. `pooling` "root" divides the sum of n vectors by the root of n: of
    unrelated items, it is as long for a long history as for a short one. With `interests` = I, I means by
    attention replace the mean, and each passes the MLP (Li et al. 2019).
    """

    kind: Literal["pooled"] = "pooled"
    last_item: bool = True
    ordered: bool = True
    leave_out: bool = True
    item_dropout: Rate = 0.0
    pooling: Literal["mean", "root"] = "mean"
    example_age: bool = False
    hidden: tuple[Width, ...] = (128,)

    @property
    def context(self) -> Context:
        """A window of the past, or a set."""
        if self.ordered:
            return "causal_window"
        return "leave_one_out" if self.leave_out else "full_set"

    @property
    def needs_timestamps(self) -> str | None:
        """The setting `example_age`, if it is on: the age of an example is a difference of times."""
        return "example_age" if self.example_age else None

    @model_validator(mode="after")
    def _inputs_fit(self) -> "PooledUserConfig":
        if not self.ordered and (self.last_item or self.example_age):
            name = "last_item" if self.last_item else "example_age"
            raise ValueError(
                f"user.ordered = false makes a set of the history, which contradicts user.{name} = true; "
                "set one of them the other way"
            )
        if self.pooling == "root" and self.item_dropout:
            raise ValueError(
                f"user.item_dropout = {self.item_dropout} leaves items out of a mean, which user.pooling = "
                "'root' replaces; set user.item_dropout = 0, or user.pooling = 'mean'"
            )
        if self.pooling == "root" and self.interests > 1:
            raise ValueError(
                f"user.pooling = 'root' replaces the mean over the history, as user.interests = "
                f"{self.interests} does by attention; set user.pooling = 'mean', or user.interests = 1"
            )
        if self.ordered and not self.leave_out:
            raise ValueError(
                "user.leave_out = false reads the item to predict, which an ordered history never contains; "
                "set user.ordered = false as well"
            )
        return self


class PooledUserTower(UserTower):
    """The tower of Covington et al. 2016 (section 3.2, figure 3), optionally with the newest item.

    With the mean alone and no hidden layer the user's vector *is* the mean.
    """

    settings, gives_interests = PooledUserConfig, True

    def __init__(self, config: PooledUserConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, dimension, prepared)
        self.config, count = config, config.interests
        self.attention = AttentionPooling(dimension, dimension, count) if count > 1 else None
        width = dimension * (1 + config.last_item) + self.feature_width + config.example_age
        self.dropout = Dropout(config.dropout)
        alone = width == dimension and not config.hidden
        self.mlp: nn.Module = (
            nn.Identity() if alone else perceptron(width, config.hidden, dimension, config.dropout)
        )

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """User vectors from the means of all windows, in one pass over the vectors."""
        weights = None if self.attention is None else self.attention.weights(vectors)
        if self.training and self.config.item_dropout:
            kept = (torch.rand(len(vectors), 1) >= self.config.item_dropout).to(vectors)
            weights = kept if weights is None else kept * weights
        if weights is None:
            means = window_means(vectors, histories, 0.5 if self.config.pooling == "root" else 1.0)
        else:
            means = weighted_means(vectors, weights, histories)
            means = means[:, 0] if self.attention is None else means
        last = gather_rows(vectors, histories.ends - 1)
        features = self.rows(histories.users) if self.rows else None
        return self._vectors(means, last, features, histories.ages)

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """User vectors from the means of the real steps; example age is zero."""
        counts = length.unsqueeze(1)
        if self.attention is not None:
            means = self.attention.padded(history, length)
        else:
            means = history.sum(dim=1) / (counts.sqrt() if self.config.pooling == "root" else counts)
        last, ages = step_at(history, length - 1), history.new_zeros(history.shape[0])
        return self._vectors(means, last, self.served_features(features), ages)

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The layer and column as in `UserTower`; the age of an example follows the features."""
        layer, first = super().feature_reader()
        return layer, first - self.config.example_age

    def _vectors(self, means: Tensor, last: Tensor, features: Tensor | None, ages: Tensor) -> Tensor:
        newest = last if self.config.last_item else None
        age = ages.unsqueeze(1) if self.config.example_age else None
        vectors: Tensor = self.mlp(self.dropout(joined(means, newest, features, age)))
        return vectors


class AttentiveUserConfig(UserTowerSettings):
    """A mean over the history, weighted by a score of each item alone (Lin et al. 2017), then an MLP.

    `attention` is the width of the layer that scores items.
    """

    kind: Literal["attentive"]
    attention: Width = 64
    hidden: tuple[Width, ...] = (128,)


class AttentiveUserTower(UserTower):
    """The mean of a history's item vectors, weighted by scores of the items alone (Lin et al. 2017, eq. 5).

    The newest item's vector is concatenated to the weighted mean.
    """

    settings = AttentiveUserConfig

    def __init__(self, config: AttentiveUserConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, dimension, prepared)
        self.attention = AttentionPooling(dimension, config.attention, 1)
        self.dropout = Dropout(config.dropout)
        self.mlp = perceptron(2 * dimension + self.feature_width, config.hidden, dimension, config.dropout)

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """User vectors from the weighted means of all windows, in one pass."""
        means = self.attention.packed(vectors, histories)[:, 0]
        last = gather_rows(vectors, histories.ends - 1)
        return self._vectors(means, last, self.rows(histories.users) if self.rows else None)

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """User vectors from the weighted mean of the real steps."""
        means = self.attention.padded(history, length)[:, 0]
        return self._vectors(means, step_at(history, length - 1), self.served_features(features))

    def _vectors(self, means: Tensor, last: Tensor, features: Tensor | None) -> Tensor:
        vectors: Tensor = self.mlp(self.dropout(joined(means, last, features)))
        return vectors
