"""The query tower: from the text of a query, or its ready vector, to the vector that finds items."""

from typing import Literal

from pydantic import model_validator
from torch import Tensor

from turret.data.features.columns import Features
from turret.tower.config import FeatureNames, Width
from turret.tower.errors import TowerError
from turret.tower.kernels.elementwise import Dropout
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.user import (
    Context,
    Inputs,
    TimeInputs,
    UserTower,
    UserTowerSettings,
    perceptron,
)


class QueryConfig(UserTowerSettings):
    """The query tower of DSSM (Huang et al. 2013, section 3): the features of a query, through an MLP.

    A query has no history. With `start` = "alike" both towers begin as one: each gram with the same random
    vector, weighted by its inverse document frequency, and ready vectors as they are, so that the first
    scores are the cosines of tf-idf vectors (in a random projection) and of ready vectors. It needs
    `feature_width` = `tower.dimension` in both towers, and no hidden layer.
    """

    kind: Literal["query"] = "query"
    features: FeatureNames = "all"
    feature_width: Width = 512
    dropout: float = 0.0
    hidden: tuple[Width, ...] = ()
    start: Literal["alike", "random"] = "alike"

    @property
    def context(self) -> Context:
        """No events: a query has no history."""
        return "none"

    @model_validator(mode="after")
    def _has_linear_layers(self) -> "QueryConfig":
        if self.start == "alike" and self.hidden:
            raise ValueError(
                f"user.start = 'alike' begins with the features themselves, and user.hidden = "
                f"{list(self.hidden)} mixes them; set hidden = [], or start = 'random'"
            )
        return self

    def check_dimension(self, dimension: int) -> None:
        """Raise ValueError unless features are as wide as vectors, where the towers begin alike."""
        if self.start == "alike" and self.feature_width != dimension:
            raise ValueError(
                f"user.start = 'alike' takes features as vectors, so user.feature_width = "
                f"{self.feature_width} has to be tower.dimension = {dimension}; set both alike, or start = "
                "'random'"
            )


class QueryTower(UserTower):
    """The features of a query, concatenated, through an MLP; its last layer is linear."""

    settings = QueryConfig

    def __init__(self, config: QueryConfig, dimension: int, prepared: Features) -> None:
        super().__init__(config, dimension, prepared)
        if self.rows is None:
            raise TowerError(
                f"tower.user.features = {config.features!r} leaves no input for a query's vector; name "
                "features that the prepared data has."
            )
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.mlp = perceptron(self.feature_width, config.hidden, dimension, config.dropout)

    def forward(self, histories: PackedHistories, vectors: Tensor) -> Tensor:
        """The vectors of the examples' queries."""
        assert self.rows is not None
        return self._vectors(self.rows(histories.users))

    def served(self, history: Tensor, length: Tensor, features: Inputs, times: TimeInputs = ()) -> Tensor:
        """The vectors of queries from the inputs of a request."""
        return self._vectors(self.served_features(features))

    def _vectors(self, features: Tensor | None) -> Tensor:
        assert features is not None
        vectors: Tensor = self.mlp(self.dropout(features))
        return vectors
