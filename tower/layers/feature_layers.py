"""Features as vectors."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from turret.data.features.columns import Bag, Features
from turret.data.features.feature import Feature
from turret.tower.errors import TowerError
from turret.tower.layers.packed import ranges


class VectorLayer(nn.Module):
    """A linear layer of vectors [B, W], with a learned vector [width] in place of missing ones (NaN)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width, bias=False)
        self.missing = nn.Parameter(torch.zeros(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """Project standardised vectors: [B, width]."""
        first = vectors[:, :1]
        is_known = first == first
        zeros = torch.zeros_like(vectors)
        projected: Tensor = self.linear(torch.where(is_known, vectors, zeros))
        return torch.where(is_known, projected, self.missing.expand_as(projected))


class FeatureLayers(nn.Module):
    """Concatenated feature inputs of a tower, [B, width].

    Codes are kept as buffers that no checkpoint stores: they belong to the prepared data. Code 0
    (unknown or missing) has no vector of its own; it gives zeros.
    """

    def __init__(self, features: Sequence[Feature], width: int) -> None:
        super().__init__()
        self.features = tuple(features)
        self.tables = nn.ModuleDict()
        self.widths: list[int] = []
        for position, feature in enumerate(self.features):
            self.widths.append(1 if feature.form == "number" else width)
            if feature.form == "vector":
                self.tables[str(position)] = VectorLayer(feature.width, width)
            elif feature.form == "code":
                self.tables[str(position)] = nn.Embedding(feature.size, width, padding_idx=0)
            elif feature.form != "number":
                self.tables[str(position)] = nn.EmbeddingBag(feature.size, width, mode="mean", padding_idx=0)
        for table in self.tables.values():
            if isinstance(table, nn.Embedding | nn.EmbeddingBag):
                nn.init.normal_(table.weight, std=0.1)
                with torch.no_grad():
                    table.weight[0] = 0.0

    @property
    def width(self) -> int:
        """The width of all features together."""
        return sum(self.widths)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Read the inputs of each feature in its `Form`: [B, width]."""
        columns = []
        for position, feature in enumerate(self.features):
            column = inputs[feature.name]
            if feature.form == "number":
                columns.append(column[:, None])
            elif feature.form in ("code", "vector"):
                columns.append(self.tables[str(position)](column))
            else:
                columns.append(self._mean_of_codes(position, column))
        return torch.cat(columns, dim=1)

    def _mean_of_codes(self, position: int, codes: Tensor) -> Tensor:
        # This computes what the bag does, spelled out in operators that every ONNX runtime has.
        table = self.tables[str(position)]
        assert isinstance(table, nn.EmbeddingBag)
        present = (codes != 0).unsqueeze(2)
        total = (torch.nn.functional.embedding(codes, table.weight) * present).sum(dim=1)
        return total / present.sum(dim=1).clamp(min=1)


class FeatureRows(nn.Module):
    """The features of every row of the prepared data, looked up by row and fed to `FeatureLayers`.

    Vectors stay in the mapped files of the prepared data, and are read for each batch.
    """

    def __init__(self, layers: FeatureLayers, prepared: Features) -> None:
        super().__init__()
        self.layers = layers
        self._vectors: dict[int, NDArray[Any]] = {}
        for position, feature in enumerate(layers.features):
            column = prepared.columns[feature.name]
            if isinstance(column, Bag):
                self._hold(f"values_{position}", torch.tensor(column.values, dtype=torch.int64))
                self._hold(f"offsets_{position}", torch.tensor(column.offsets, dtype=torch.int64))
            elif feature.form == "vector":
                assert isinstance(column, np.ndarray)
                self._vectors[position] = column
            else:
                dtype = torch.float32 if feature.form == "number" else torch.int64
                self._hold(f"column_{position}", torch.tensor(column, dtype=dtype))

    def _hold(self, name: str, column: Tensor) -> None:
        self.register_buffer(name, column, persistent=False)

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are among the features."""
        return bool(self._vectors)

    def _standardised(self, position: int, rows: Tensor) -> Tensor:
        """The vectors of `rows` [B] over their deviation: float32 [B, W]."""
        vectors = self._vectors[position][rows.cpu().numpy()].astype(np.float32)
        vectors /= np.float32(self.layers.features[position].deviation)
        return torch.from_numpy(vectors).to(rows.device)

    def forward(self, rows: Tensor) -> Tensor:
        """The dense features of `rows` [B]: [B, width]."""
        columns = []
        for position, feature in enumerate(self.layers.features):
            if feature.form == "number":
                columns.append(self.get_buffer(f"column_{position}")[rows][:, None])
                continue
            if feature.form == "vector":
                arguments: tuple[Tensor, ...] = (self._standardised(position, rows),)
            elif feature.form == "code":
                arguments = (self.get_buffer(f"column_{position}")[rows],)
            else:
                values, offsets = (self.get_buffer(f"{name}_{position}") for name in ("values", "offsets"))
                # `embedding_bag` takes the codes of the rows end to end, and where each row begins.
                lengths = offsets[rows + 1] - offsets[rows]
                arguments = values[ranges(offsets[rows], lengths)], lengths.cumsum(0) - lengths
            columns.append(self.layers.tables[str(position)](*arguments))
        return torch.cat(columns, dim=1)


def feature_rows(
    names: tuple[str, ...] | Literal["all"], width: int, prepared: Features, setting: str
) -> FeatureRows | None:
    """The prepared features that a tower reads, in the order of `names`; None where it reads none.

    Raises TowerError, naming the `setting`, for a name that the prepared data does not have.
    """
    known = {feature.name: feature for feature in prepared.features}
    chosen = tuple(known) if names == "all" else names
    for name in chosen:
        if chosen.count(name) > 1:
            raise TowerError(f"{setting}: {name!r} is named twice; name it once.")
        if name not in known:
            raise TowerError(
                f"{setting}: there is no prepared feature {name!r}; "
                f"the prepared data has: {', '.join(known) or 'none'}."
            )
    layers = FeatureLayers([known[name] for name in chosen], width)
    return FeatureRows(layers, prepared) if chosen else None
