"""The user tower as ONNX, the form that a bundle serves."""

import logging
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from data.features import Feature
from tower.model import TwoTowers
from tower.scoring import scored_form


class ServedUserTower(nn.Module):
    """Padded item vectors, lengths and features in; scored user vectors out."""

    def __init__(self, model: TwoTowers) -> None:
        super().__init__()
        self.user = model.user
        self.scoring = model.config.scoring
        self.features: tuple[Feature, ...] = model.user.rows.layers.features if model.user.rows else ()

    def forward(self, history: Tensor, length: Tensor, *features: Tensor) -> Tensor:
        """history [B, T, D], length [B], one input a feature: user vectors [B, D]."""
        named = {feature.name: given for feature, given in zip(self.features, features, strict=True)}
        return scored_form(self.user.served(history, length, named), self.scoring)


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
    (category int64 [B], number float32 [B], multi and text int64 [B, M], 0 = nothing).
    Output: `user_vector` float32 [B, D].
    """
    served = ServedUserTower(model).eval().cpu()
    dimension = model.config.dimension
    examples = (torch.zeros(2, 4, dimension), torch.ones(2, dtype=torch.int64))
    bags = tuple({0: "B", 1: f"M{i}"} if _is_bag(f) else {0: "B"} for i, f in enumerate(served.features))
    exporter_log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = exporter_log.level
    # The exporter warns about its own internals and about packages (torchvision) nobody asked for.
    exporter_log.setLevel(logging.ERROR)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            served,
            (*examples, *map(_example, served.features)),
            input_names=["history", "length", *(f"feature_{f.name}" for f in served.features)],
            output_names=["user_vector"],
            dynamo=True,
            dynamic_shapes=({0: "B", 1: "T"}, {0: "B"}, *([bags] if bags else [])),
            verbose=False,
        )
        assert program is not None
        path = Path(scratch) / "user_tower.onnx"
        program.save(str(path))
        exporter_log.setLevel(level)
        return path.read_bytes()


def _is_bag(feature: Feature) -> bool:
    return feature.kind in ("multi", "text")
