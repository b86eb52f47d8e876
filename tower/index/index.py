"""The contract of indexes, the exact index, and the opening of a bundle's index by its kind."""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.format.index_settings import FlatSettings, IndexSettings
from turret.tower.index.faiss_calls import Found, faiss

# From this k on FAISS's heap costs more than all scores and one partial sort (27,000 x 64: 290 against 130
# microseconds at k = 1,000), and with several OpenMP threads it waits for each of them.
_LARGE_K = 200


class Index(ABC):
    """The contract of every kind: k rows come back if k allowed rows exist.

    Attributes:
        settings: the manifest's description of the index.
    """

    settings: IndexSettings
    # Searches for several queries fetch a multiple of so many rows, so that more of them share a call.
    fetch_step = 1

    @classmethod
    @abstractmethod
    def load(cls, path: Path, vectors: NDArray[np.float32], settings: Any) -> "Index":
        """Open the file that `save` wrote, over the bundle's vectors [N, D], perhaps mapped.

        Raises BundleError when `path` doesn't fit the vectors or the settings.
        """

    @abstractmethod
    def nearest(
        self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None, spare: int = 0
    ) -> Found:
        """The best k of the allowed rows for one finite, contiguous `vector` [D] and k >= 1, unchecked.

        `spare` more rows come with the effort for `k`, where a kind has efforts.

        Returns:
            Rows and inner products, both [k'], higher ones first, then lower rows; k' is k or the number of
            allowed rows if that is less.

        Raises EngineError where an engine can't be reached; kinds in this process never raise it.
        """

    def nearest_of_each(self, vectors: NDArray[np.float32], k: int, spare: int = 0) -> list[Found]:
        """`nearest` for each of `vectors` [B, D]; an answer is independent of its batch."""
        return [self.nearest(vector, k, None, spare) for vector in vectors]

    @property
    @abstractmethod
    def exact(self) -> "ExactIndex":
        """The exact search over the same vectors; an exact index is its own."""

    def vectors(self) -> NDArray[np.float32]:
        """The item vectors [N, D], without a copy."""
        return self.exact.vectors()

    def __len__(self) -> int:
        return len(self.exact)

    def save(self, path: Path) -> None:
        """Write to the file `path` all that the item vectors and the settings don't tell.

        A kind with a file replaces this; the others have nothing to write.
        """
        assert not self.settings.has_file

    def search(
        self, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Search for each of `vectors` [B, D] on its own: its answer is independent of its batch.

        Returns rows and inner products, both [B, k'], where k' is k or the number of rows that the mask
        `allowed` [N] allows if that is less. Raises ValueError for a k below 1, vectors that are not finite,
        or a mask of another length.
        """
        if k < 1 or not np.isfinite(vectors).all():
            raise ValueError(f"a search needs k >= 1 and finite vectors; k is {k}")
        if allowed is not None and allowed.shape != (len(self),):
            raise ValueError(f"allowed has shape {allowed.shape} where the index has {len(self)} rows")
        mask = None if allowed is None else RowMask(allowed)
        k = min(k, len(self) if mask is None else mask.count)
        rows = np.empty((len(vectors), k), dtype=np.int64)
        scores = np.empty((len(vectors), k), dtype=np.float32)
        for position, vector in enumerate(np.ascontiguousarray(vectors, dtype=np.float32)):
            if k:
                rows[position], scores[position] = self.nearest(vector, k, mask)
        return rows, scores


def ordered(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Found:
    """The best `k` of rows [M] and their scores [M]: higher scores first, then lower rows."""
    if 0 < k < len(rows) // 4:
        # All that tie with the k-th best stay. One partition takes a tenth of the time of the sort of 27,000.
        best = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])
        rows, scores = rows[best], scores[best]
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


class ExactIndex(Index):
    """Compares every vector with every query, where the vectors lie: in memory, or mapped from a file.

    Ties have a stated order: higher scores first, then lower rows first, also where the tie is cut. Each
    query is searched on its own, so that it gets the same answer whatever it is batched with, and a row's
    score is the same number whichever rows are allowed.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.settings = FlatSettings()
        # A memory map's own class makes each access slower, and its plain view keeps it open.
        self._vectors = np.ascontiguousarray(np.asarray(vectors), dtype=np.float32)
        self._count, self._dimension = map(int, self._vectors.shape)
        self._pointer = faiss.swig_ptr(self._vectors)

    @classmethod
    def load(cls, path: Path, vectors: NDArray[np.float32], settings: Any) -> "ExactIndex":
        """Search the bundle's `vectors` [N, D] where they lie; there is no file."""
        return cls(vectors)

    @property
    def exact(self) -> "ExactIndex":
        """This index."""
        return self

    def __len__(self) -> int:
        return self._count

    def vectors(self) -> NDArray[np.float32]:
        """The indexed vectors [N, D], without a copy."""
        return self._vectors

    def nearest(
        self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None, spare: int = 0
    ) -> Found:
        """Search as `Index.nearest`; where the cut goes through a tie, all rows that tie compete."""
        count = self._count if allowed is None else allowed.count
        k = min(k + spare, count)
        fetch = min(k + 1, count)
        if not k:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        if fetch > _LARGE_K:
            return self._of_all(vector, k, allowed)
        rows, scores = np.empty(fetch, dtype=np.int64), np.empty(fetch, dtype=np.float32)
        best = fetch, faiss.swig_ptr(scores), faiss.swig_ptr(rows)
        searched = faiss.swig_ptr(vector), self._pointer
        if allowed is None:
            faiss.knn_inner_product(*searched, self._dimension, 1, count, *best)
        else:
            chosen = faiss.swig_ptr(allowed.rows)
            faiss.knn_inner_products_by_idx(*searched, chosen, self._dimension, 1, self._count, count, *best)
        if len(set(scores.tolist())) == len(scores):
            return rows[:k], scores[:k]
        if fetch < count and scores[-1] == scores[k - 1]:
            return self._of_all(vector, k, allowed)
        return ordered(rows, scores, k)

    def scores(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The inner products of `vector` [D] with the vectors of `rows` [M], int64 and contiguous: [M]."""
        scores = np.empty(len(rows), dtype=np.float32)
        faiss.fvec_inner_products_by_idx(
            faiss.swig_ptr(scores),
            faiss.swig_ptr(vector),
            self._pointer,
            faiss.swig_ptr(rows),
            self._dimension,
            1,
            len(rows),
        )
        return scores

    @cached_property
    def _every_row(self) -> NDArray[np.int64]:
        return np.arange(self._count, dtype=np.int64)

    def _of_all(self, vector: NDArray[np.float32], k: int, allowed: RowMask | None) -> Found:
        """Score every allowed row."""
        # FAISS scores neighbouring rows faster, but for some D the last bit of a score then differs.
        chosen = self._every_row if allowed is None else allowed.rows
        return ordered(chosen, self.scores(vector, chosen), k)


def open_index(path: Path, vectors: NDArray[np.float32], settings: IndexSettings) -> Index:
    """Open the index over a bundle's vectors [N, D]. Raises BundleError when `path` doesn't fit."""
    opened: Index = resolve_name(settings.index_class).load(path, vectors, settings)
    return opened
