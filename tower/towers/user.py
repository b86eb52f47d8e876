"""The contract of user towers: histories in, user vectors out, packed for training and padded for serving."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from turret.data.features.columns import Features
from turret.tower.config import FeatureNames, Length, Rate, Settings, Width
from turret.tower.kernels.elementwise import Dropout
from turret.tower.layers.feature_layers import FeatureRows, feature_rows
from turret.tower.layers.packed import PackedHistories

# Segments are padded to the longest of a batch.
SegmentLength = Annotated[int, Field(strict=True, ge=1, le=10_000)]
# The inputs of a request are features by name, and gaps and clocks.
Inputs = Mapping[str, Tensor]
TimeInputs = tuple[Tensor, ...]
Context = Literal["causal_window", "causal_segment", "leave_one_out", "full_set", "none"]
"""The events of a user that a tower reads to predict one of them: a window of events before it; such a window
from a start that many examples share, so that one pass serves all of them; all other events, as a set; the
whole set; or none, for queries."""
# In these contexts a history is a set, whose first event is a target like any other.
SETS = ("leave_one_out", "full_set")
# A request makes a search for each interest.
MOST_INTERESTS = 32


class UserTowerSettings(Settings):
    """The settings of every user tower. A subclass names its `kind` as a `Literal` and adds its own settings.

    `history_length` is the number of newest items that the tower reads. `kinds` weighs each of them by the
    kind of its event, where the data has several kinds (`tower.towers.model.KindLayer`). With `interests` = I
    above 1 a user has I vectors, and an item the best of its I scores.
    `context_features` names the prepared columns of contexts that change a vector
    (`tower.towers.context.ContextLayer`); `"all"` is all of them.
    """

    kind: str
    history_length: Length = 50
    features: FeatureNames = ()
    context_features: FeatureNames = ()
    feature_width: Width = 8
    dropout: Rate = 0.1
    kinds: bool = True
    interests: Annotated[int, Field(strict=True, ge=1, le=MOST_INTERESTS)] = 1
    # A setting of 0.2.0, which its runs and bundles name: read where it had no effect, and not written.
    interest_power: Annotated[None, Field(exclude=True)] = None

    @property
    def context(self) -> Context:
        """The events that training lets the tower read."""
        return "causal_window"

    @property
    def reads_times(self) -> bool:
        """Whether `UserTower.served` is given gaps and clocks."""
        return False

    @property
    def needs_timestamps(self) -> str | None:
        """The name of the setting, if any, that data without timestamps can't satisfy."""
        return "times" if self.reads_times else None

    def check_dimension(self, dimension: int) -> None:
        """Raise ValueError when the tower can't give vectors of width `dimension`."""


class UserTower(nn.Module, ABC):
    """Computes user vectors of width D from the item vectors of histories.

    Attributes:
        settings: the class of its settings, whose `kind` is the name in `tower.user.kind`.
        rows: the prepared features of users by user row; None where the tower reads no features.
        reader: the name of the linear layer that reads the features.
        gives_interests: whether the tower gives I vectors a user, where `interests` asks for them.
    """

    settings: ClassVar[type[UserTowerSettings]]
    rows: FeatureRows | None
    reader: ClassVar[str] = "mlp.0"
    gives_interests: ClassVar[bool] = False

    def __init__(self, config: Any, dimension: int, prepared: Features) -> None:
        """A fresh tower of width `dimension`. Raises TowerError for a feature that isn't prepared."""
        super().__init__()
        names, width = config.features, config.feature_width
        self.rows = feature_rows(names, width, prepared, "tower.user.features") if names else None
        self.feature_width = self.rows.layers.width if self.rows else 0

    @abstractmethod
    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """Compute every example of a packed batch at once, as training and evaluation do.

        Args:
            histories: the packed batch.
            vectors: [P, D] item vectors of `histories.rows`.

        Returns:
            [B, D] user vectors, before the scoring's normalisation; [B, I, D] for `interests` = I above 1.
        """

    @abstractmethod
    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """Compute the form that a bundle serves: padded histories, features by name, example age zero.

        Args:
            history: [B, T, D] item vectors, oldest first, right-padded with zeros.
            length: [B] how many of the T steps are real, at least 1.
            features: inputs of `FeatureLayers.forward` by feature name.
            times: gaps and clocks, [B, T] each, as in `PackedHistories`; empty where times are unknown or
                the tower reads none.

        Returns:
            [B, D] or [B, I, D], equal to `forward` on the same histories.
        """

    def feature_reader(self) -> tuple[nn.Linear, int]:
        """The linear layer that reads the users' features, and the first column of features in its input.

        By default features are the last columns of `reader`. A warm start rescales them when the
        standardisation of a feature has changed. The method is only called for towers with features.
        """
        layer = cast(nn.Linear, self.get_submodule(self.reader))
        return layer, layer.in_features - self.feature_width

    def served_features(self, features: Inputs) -> Tensor | None:
        """The dense features from the inputs of a request; None where the tower reads no features."""
        return self.rows.layers(features) if self.rows else None


def joined(*parts: Tensor | None) -> Tensor:
    """The parts that are not None, side by side: [B, D]. A lone part need not be copied.

    If the first part is [B, I, W], the others [B, ...] are repeated for each interest: [B, I, D].
    """
    first, *others = [part for part in parts if part is not None]
    if first.dim() == 3:
        others = [part.unsqueeze(1).expand(-1, first.shape[1], -1) for part in others]
    return torch.cat([first, *others], dim=-1) if others else first


def perceptron(inputs: int, hidden: Sequence[int], outputs: int, dropout: float) -> nn.Sequential:
    """A ReLU network from width `inputs` over the `hidden` widths to `outputs`; its last layer is linear."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(), Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))
