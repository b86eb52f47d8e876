"""The items that one version can answer with: names, fields and vectors by row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.bundle import Bundle


class Stock:
    """A bundle's catalogue, by row."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self.id = bundle.vocabulary.id
        self.known_rows = bundle.vocabulary.known_rows
        self.fields = bundle.catalog.of
        self.json_of = bundle.catalog.json_of

    def vectors(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The item vectors [B, D] of rows [B]."""
        vectors: NDArray[np.float32] = self._bundle.vectors[rows]
        return vectors
