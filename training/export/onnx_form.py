"""Export of the towers to ONNX, the served form."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from turret.data.features.feature import Feature
from turret.data.files import scratch_folder
from turret.tower.times import TIME_INPUTS
from turret.tower.towers.model import TwoTowers, scored_items, scored_users


class ServedUserTower(nn.Module):
    """Maps padded item vectors, lengths and features to user vectors ready for scoring."""

    def __init__(self, model: TwoTowers) -> None:
        super().__init__()
        self.user, self.kinds, self.context = model.user, model.kinds, model.context
        self.scoring = model.scoring
        self.features: tuple[Feature, ...] = model.request_features
        self.times = TIME_INPUTS if model.config.user.reads_times else ()

    @property
    def names(self) -> list[str]:
        """The names of the inputs, in order."""
        kinds = [] if self.kinds is None else ["kinds"]
        features = (f"feature_{feature.name}" for feature in self.features)
        return ["history", "length", *kinds, *self.times, *features]

    def forward(self, history: Tensor, length: Tensor, *others: Tensor) -> Tensor:
        """User vectors of history [B, T, D], length [B], kinds and times [B, T] if read, features."""
        count = self.scoring.pairs
        of_pairs, history = history[..., :count], history[..., count:]
        if self.kinds is not None:
            history, others = self.kinds(history, others[0]), others[1:]
        times, features = others[: len(self.times)], others[len(self.times) :]
        named = {feature.name: value for feature, value in zip(self.features, features, strict=True)}
        users = self.user.served(history, length, named, times)
        if self.context is not None:
            users = self.context.served(users, named)
        users = scored_users(users, self.scoring)
        if count:
            users = torch.cat([of_pairs.sum(dim=1) / length.unsqueeze(1).sqrt(), users], dim=1)
        return users


class ServedItemTower(nn.Module):
    """Maps the features of items without a trained id to item vectors ready for scoring.

    The vector of such an id is zeros if the model was trained with id dropout, which replaces ids by zeros.
    Otherwise the layers have never seen zeros, and the vector is the mean of all ids, as for the new items of
    a warm start (`training.warm_start`). Such items have no pairs: their columns are zeros.
    """

    def __init__(self, model: TwoTowers) -> None:
        super().__init__()
        assert model.item.rows is not None
        self.layers = model.item.rows.layers
        self.mlp = model.item.mlp
        self.scoring = model.scoring
        self.features: tuple[Feature, ...] = self.layers.features
        self.unknown_id: Tensor | None
        unknown = None
        if model.item.table is not None:
            unknown = model.item.table.weight.detach().cpu().mean(dim=0, keepdim=True)
            unknown = torch.zeros_like(unknown) if model.item.id_dropout else unknown
        self.register_buffer("unknown_id", unknown)

    def forward(self, *features: Tensor) -> Tensor:
        """Item vectors [B, D] of one input per feature, category and number [B], multi and text [B, M]."""
        named = {feature.name: value for feature, value in zip(self.features, features, strict=True)}
        inputs = self.layers(named)
        if self.unknown_id is not None:
            inputs = torch.cat([self.unknown_id.expand(len(inputs), -1), inputs], dim=1)
        vectors = scored_items(self.mlp(inputs), self.scoring)
        if count := self.scoring.pairs:
            vectors = torch.cat([vectors.new_zeros(len(vectors), count), vectors], dim=1)
        return vectors


def user_tower_onnx(model: TwoTowers) -> bytes:
    """Export the user tower with free batch, history and bag sizes.

    Inputs: `history` float32 [B, T, D], `length` int64 [B], `feature_<name>` for each feature of users and
    contexts in its `Form`, `kinds` int64 [B, T] (-1 = unknown, and padding) where the towers read kinds, and
    `gaps` and `clocks` float32 [B, T] where the tower reads times.
    Output: `user_vector` float32 [B, D], or [B, I, D] of several interests.
    """
    served = ServedUserTower(model).eval().cpu()
    # A history of one step would make T a constant, and one of more than the tower reads contradicts it.
    length = max(2, min(4, model.config.user.history_length))
    examples = (torch.zeros(2, length, model.width), torch.ones(2, dtype=torch.int64))
    kinds = [] if served.kinds is None else [torch.full((2, length), -1)]
    steps = [*kinds, *(torch.zeros(2, length) for _ in served.times)]
    others = (*steps, *map(_example, served.features))
    shapes = (*({0: "B", 1: "T"} for _ in steps), *_shapes(served.features))
    dynamic = ({0: "B", 1: "T"}, {0: "B"}, *([shapes] if shapes else []))
    return _exported(served, (*examples, *others), served.names, "user_vector", dynamic)


def item_tower_onnx(model: TwoTowers) -> bytes | None:
    """Export the item tower for items without a trained id; None if it reads no features.

    Inputs: `feature_<name>` for each item feature, as the user tower's, with free batch and bag sizes.
    Output: `item_vector` float32 [B, D], like the item vectors of the bundle.
    """
    if model.item.rows is None:
        return None
    served = ServedItemTower(model).eval().cpu()
    names = [f"feature_{feature.name}" for feature in served.features]
    examples = tuple(map(_example, served.features))
    return _exported(served, examples, names, "item_vector", (_shapes(served.features),))


def _example(feature: Feature) -> Tensor:
    """An example input of a feature for two users or items."""
    if feature.form == "vector":
        return torch.zeros(2, feature.width)
    if feature.form == "number":
        return torch.zeros(2)
    if feature.form == "code":
        return torch.zeros(2, dtype=torch.int64)
    return torch.zeros(2, 3, dtype=torch.int64)


def _shapes(features: Sequence[Feature]) -> tuple[dict[int, str], ...]:
    return tuple(
        {0: "B", 1: f"M{i}"} if feature.form == "codes" else {0: "B"} for i, feature in enumerate(features)
    )


def _exported(
    served: nn.Module, examples: tuple[Tensor, ...], names: list[str], output: str, shapes: tuple[Any, ...]
) -> bytes:
    # The first export of a process caches how a GRU is dispatched; the second would use the decomposition
    # for autograd, a loop over the steps that makes T a constant.
    torch.ops.aten.gru.input._dispatch_cache.clear()
    with scratch_folder() as scratch, _quiet_exporter():
        program = torch.onnx.export(
            served,
            examples,
            input_names=names,
            output_names=[output],
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
        )
        assert program is not None
        path = scratch / "tower.onnx"
        program.save(str(path))
        return path.read_bytes()


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Hide the exporter's messages on its own internals and on missing optional packages (torchvision)."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
