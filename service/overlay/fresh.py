"""The overlay of a bundle: items added, changed and withdrawn since it was made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import orjson
from numpy.typing import NDArray

from turret.data.vocabulary import Id, Vocabulary, find_rows
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class FreshItems:
    """The changes to a bundle of N rows, and M fresh items, which have the rows N .. N + M - 1. Immutable.

    Attributes:
        vocabulary: of the bundle.
        vectors: of the fresh items, float32 [M, D].
        ids: of the fresh items, in the order of their last changes.
        fields: of the fresh items, as JSON objects.
        features: of the fresh items, as JSON objects, as they were put.
        replaced: the new fields of rows of the bundle.
        withdrawn: the rows of the bundle that are not recommended, sorted.
        withdrawn_ids: the ids of other withdrawn items.
        number: of the last change in it.
    """

    vocabulary: Vocabulary
    vectors: NDArray[np.float32]
    ids: Sequence[str] = ()
    fields: Sequence[bytes] = ()
    replaced: Mapping[int, bytes] = field(default_factory=dict)
    withdrawn: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    withdrawn_ids: frozenset[str] = frozenset()
    number: int = 0
    features: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def first_row(self) -> int:
        """N, the row of the first fresh item."""
        return len(self.vocabulary)

    @property
    def has_fields(self) -> bool:
        """Whether any row has fields that are not in the bundle's catalog."""
        return bool(self.ids or self.replaced)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each fresh item by its id; its row is N + its position."""
        return dict(zip(self.ids, range(len(self.ids)), strict=True))

    def row(self, outside_id: Id) -> int | None:
        """Return the row of an id, or None; withdrawn items of the bundle have one too."""
        row = self.vocabulary.row(outside_id)
        if row is not None or not self.ids:
            return row
        position = self.positions.get(str(outside_id))
        return None if position is None else self.first_row + position

    def known_rows(self, ids: Iterable[Id]) -> tuple[NDArray[np.int32], list[Id]]:
        """Return the rows of the known ids, in the order given, and the unknown ids."""
        if not self.ids:
            return self.vocabulary.known_rows(ids)
        return find_rows(self.row, ids)

    def id(self, row: int) -> Id:
        """Return the id of a row, of the type of the bundle's ids."""
        if row < self.first_row:
            return self.vocabulary.id(row)
        text = self.ids[row - self.first_row]
        return int(text) if self.vocabulary.kind == "integer" else text

    def fields_of(self, row: int) -> bytes | None:
        """Return an item's fields as JSON; None if those of the bundle's catalog apply."""
        if row < self.first_row:
            return self.replaced.get(row) if self.replaced else None
        return self.fields[row - self.first_row]

    def features_of(self, row: int) -> bytes | None:
        """Return the features of a fresh item as JSON; None for an item of the bundle."""
        return None if row < self.first_row else self.features[row - self.first_row]

    @cached_property
    def served(self) -> RowMask | None:
        """The rows [N] of the bundle that are not withdrawn; None for all."""
        if not len(self.withdrawn):
            return None
        mask = np.ones(self.first_row, dtype=bool)
        mask[self.withdrawn] = False
        return RowMask(mask)

    def allowed(self, filtering: Filter) -> RowMask:
        """The rows [N] of the bundle that a filter allows.

        Excludes withdrawn rows and applies the filter to replaced fields. It is the filter's own mask if no
        row of the bundle has changed.
        """
        if not len(self.withdrawn) and not self.replaced:
            return filtering.allowed()
        return filtering.cached(("main", self._key), lambda: self._main_mask(filtering))

    def fresh_allowed(self, filtering: Filter) -> Mask:
        """The mask [M] of the fresh items that a filter allows, read-only."""
        return filtering.cached(("fresh", self._key), lambda: self._fresh_mask(filtering)).mask

    @cached_property
    def _key(self) -> object:
        """Identifies this overlay among the cached masks; a key of its number would match another store's."""
        return object()

    def _main_mask(self, filtering: Filter) -> Mask:
        mask = filtering.allowed().mask.copy()
        for row, fields in self.replaced.items():
            mask[row] = filtering.matches(orjson.loads(fields))
        mask[self.withdrawn] = False
        return mask

    def _fresh_mask(self, filtering: Filter) -> Mask:
        return np.array([filtering.matches(orjson.loads(fields)) for fields in self.fields], dtype=bool)
