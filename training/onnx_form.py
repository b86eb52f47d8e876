"""The user tower as ONNX, the form that a bundle serves."""

import logging
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from data.features import Feature
from tower.model import TwoTowers
from tower.scoring import scored_users
from tower.times import TIME_INPUTS
from tower.transformer_user import TransformerUserTower


class ServedUserTower(nn.Module):
    """Padded item vectors, lengths and features in; scored user vectors out."""

    def __init__(self, model: TwoTowers) -> None:
        super().__init__()
        self.user = model.user
        self.scoring = model.config.scoring
        self.features: tuple[Feature, ...] = model.user.rows.layers.features if model.user.rows else ()
        self.times = TIME_INPUTS if model.config.user.times else ()

    @property
    def names(self) -> list[str]:
        """The names of the inputs, in order."""
        return ["history", "length", *self.times, *(f"feature_{feature.name}" for feature in self.features)]

    def forward(self, history: Tensor, length: Tensor, *others: Tensor) -> Tensor:
        """history [B, T, D], length [B], times [B, T] if read, one input a feature: user vectors [B, D]."""
        times, features = others[: len(self.times)], others[len(self.times) :]
        named = {feature.name: given for feature, given in zip(self.features, features, strict=True)}
        if isinstance(self.user, TransformerUserTower):
            return scored_users(self.user.served(history, length, named, *times), self.scoring)
        return scored_users(self.user.served(history, length, named), self.scoring)


def _example(feature: Feature) -> Tensor:
    """Two users' inputs of one feature."""
    if feature.kind == "number":
        return torch.zeros(2)
    if feature.kind == "category":
        return torch.zeros(2, dtype=torch.int64)
    return torch.zeros(2, 3, dtype=torch.int64)


def user_tower_onnx(model: TwoTowers) -> bytes:
    """Export the user tower with free batch, history and bag sizes.

    Inputs: `history` float32 [B, T, D], `length` int64 [B], `feature_<name>` for each user feature
    (category int64 [B], number float32 [B], multi and text int64 [B, M], 0 = nothing), and `gaps` and
    `clocks` float32 [B, T] where the tower reads times.
    Output: `user_vector` float32 [B, D].
    """
    served = ServedUserTower(model).eval().cpu()
    dimension = model.config.dimension
    examples = (torch.zeros(2, 4, dimension), torch.ones(2, dtype=torch.int64))
    others = (*(torch.zeros(2, 4) for _ in served.times), *map(_example, served.features))
    bags = ({0: "B", 1: f"M{i}"} if _is_bag(f) else {0: "B"} for i, f in enumerate(served.features))
    shapes = (*({0: "B", 1: "T"} for _ in served.times), *bags)
    exporter_log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = exporter_log.level
    # The exporter warns about its own internals and about packages (torchvision) nobody asked for.
    exporter_log.setLevel(logging.ERROR)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            served,
            (*examples, *others),
            input_names=served.names,
            output_names=["user_vector"],
            dynamo=True,
            dynamic_shapes=({0: "B", 1: "T"}, {0: "B"}, *([shapes] if shapes else [])),
            verbose=False,
        )
        assert program is not None
        path = Path(scratch) / "user_tower.onnx"
        program.save(str(path))
        exporter_log.setLevel(level)
        return path.read_bytes()


def _is_bag(feature: Feature) -> bool:
    return feature.kind in ("multi", "text")
