"""The index contract on a running engine: it finds candidates, and the bundle's vectors give their scores."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.conditions import Condition
from turret.tower.catalog.filters import Filter
from turret.tower.catalog.masks import RowMask
from turret.tower.engines.access import Connection, connection
from turret.tower.engines.fields import where_of
from turret.tower.format.index_settings import EngineSettings
from turret.tower.index.faiss_calls import Found
from turret.tower.index.index import ExactIndex, Index, ordered

# This many more items are fetched, as withdrawn and replaced items are dropped from an answer.
_SPARE = 8


class EngineForm(NamedTuple):
    """A mask in the terms of an engine.

    `where`: the condition to send; None sends none. `added`: the allowed rows that don't meet the condition,
    as their fields were replaced. `dropped`: the number of rows that meet it and aren't allowed.
    """

    where: Condition | None
    added: NDArray[np.int64]
    dropped: int


class EngineIndex(Index):
    """Searches the collection of a version.

    Scores and their order are as in exact search, since scores are computed here. An answer that the engine
    leaves short of k allowed rows is replaced by the exact answer.
    """

    settings: EngineSettings

    def __init__(self, vectors: NDArray[np.float32], settings: EngineSettings, engine: Connection) -> None:
        self.settings = settings
        self.engine = engine
        self._exact = ExactIndex(vectors)

    @classmethod
    def load(cls, path: Path, vectors: NDArray[np.float32], settings: EngineSettings) -> "EngineIndex":
        """Search the collection that `settings` name; the first search connects to the engine."""
        return cls(vectors, settings, connection(settings.engine))

    @property
    def exact(self) -> ExactIndex:
        """The exact search over the bundle's vectors, mapped from their file."""
        return self._exact

    def nearest(
        self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None, spare: int = 0
    ) -> Found:
        """Search as `Index.nearest`. Raises EngineError when the engine is unavailable."""
        count = len(self) if allowed is None else allowed.count
        k = min(k + spare, count)
        where, added, dropped = _ALL if allowed is None else allowed.derived(engine_form)
        fetch = min(k + min(dropped, _SPARE + 2 * dropped * k // max(1, count)), len(self))
        breadth = self.settings.breadth(count - len(added) + dropped, fetch)
        # Where more rows are dropped than allowed, the exact search costs less.
        if not k or breadth is None or dropped > count:
            return self._exact.nearest(vector, k, allowed)
        rows = self.engine.search(self.settings.collection, vector, fetch, breadth, where, len(self))
        rows = rows if allowed is None else rows[allowed.mask[rows]]
        if len(rows) < min(k, count - len(added)):
            return self._exact.nearest(vector, k, allowed)
        rows = np.union1d(rows, added).astype(np.int64)
        return ordered(rows, self._exact.scores(vector, rows), k)


def engine_form(allowed: RowMask) -> EngineForm:
    """The form in which an engine takes a mask."""
    where, met = None, np.ones_like(allowed.mask)
    if isinstance(allowed.origin, Filter):
        where = where_of(allowed.origin.condition, allowed.origin.catalog)
        met = allowed.origin.allowed().mask if where else met
    added = np.flatnonzero(allowed.mask & ~met)
    return EngineForm(where, added, int(np.count_nonzero(met & ~allowed.mask)))


_NO_ROWS: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_ALL = EngineForm(None, _NO_ROWS, 0)
