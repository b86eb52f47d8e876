"""The items that one version can answer with: names, fields and vectors by row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import RequestError
from tower.bundle import Bundle
from tower.filters import compile_filter


class Stock:
    """A bundle's catalogue, by row."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self.id = bundle.vocabulary.id
        self.known_rows = bundle.vocabulary.known_rows
        self.fields = bundle.catalog.of
        self.json_of = bundle.catalog.json_of

    def check_field(self, name: str, where: str) -> None:
        """Raise RequestError (422), naming `where` it was asked for, unless items have this field."""
        fields = self._bundle.catalog.field_names
        if name not in fields:
            known = f"they have {', '.join(fields)}" if fields else "they have none"
            raise RequestError(422, where, name, f"items have no such field; {known}")

    def allowed(self, wanted: Mapping[str, Any]) -> NDArray[np.bool_]:
        """The rows [N] that a filter allows. Raises FilterError for one that the catalogue can't answer."""
        return compile_filter(wanted, self._bundle.catalog).allowed()

    def vectors(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The item vectors [B, D] of rows [B]."""
        vectors: NDArray[np.float32] = self._bundle.vectors[rows]
        return vectors
