"""Approximate candidates, scored exactly before they are ranked."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from turret.tower.catalog.masks import RowMask
from turret.tower.format.index_settings import ApproximateSettings, IvfPqSettings, SearchParams
from turret.tower.index.faiss_calls import Found, faiss, ordered, write_faiss
from turret.tower.index.index import ExactIndex, Index
from turret.tower.index.kinds import open_codes, parameters, train

# Queries of one call, which read codes once. From 20 on FAISS compares centres by BLAS, with other rounding.
AT_ONCE = 16


class ApproximateIndex(Index):
    """A FAISS index that proposes rows, and the item vectors that rank them.

    Scores are true inner products, the same numbers that `ExactIndex` gives, and rows come in the same order:
    higher scores first, then lower rows. Of rows that tie at the end, the proposed ones
    come. Where fewer than k allowed rows are proposed, the allowed ones are all scored instead.
    """

    settings: ApproximateSettings

    def __init__(self, proposing: Any, vectors: NDArray[np.float32], settings: ApproximateSettings) -> None:
        self._proposing = proposing
        self._exact = ExactIndex(vectors)
        self.settings = settings
        # Without lists, fast-scan codes take no selector: allowed rows are scored exactly.
        self._takes_masks = True
        if isinstance(settings, IvfPqSettings):
            self._takes_masks = not settings.reads_all
            if not settings.reads_all:
                # Of FAISS's ways the one for single queries; it chooses by batches, and takes 2-3 us more. A
                # file doesn't keep it.
                faiss.downcast_index(proposing.index).implem = 10
        # The columns that are only stored, in which queries have zeros.
        self._missing = settings.width(self._exact.dimension) - self._exact.dimension
        # Search parameters are read, never written, by a search; those without a selector serve all.
        # Closures over the settings alone: a reference to this index would keep it alive after its version.
        self._params = cache(partial(_params, settings.efforts))
        self._parameters = cache(partial(parameters, settings))

    @classmethod
    def build(
        cls, vectors: NDArray[np.float32], settings: Any, users: NDArray[np.float32] | None = None
    ) -> Self:
        """Index `vectors` [N, D] as `settings` say; row n is vector n.

        `users` [U, D] are real user vectors that the index may learn from; recall is measured with others.
        """
        return cls(train(settings, np.ascontiguousarray(vectors, dtype=np.float32), users), vectors, settings)

    @classmethod
    def load(cls, path: Path, vectors: NDArray[np.float32], settings: Any) -> Self:
        """Map the file of `save` beside its vectors [N, D].

        Raises BundleError when `path` holds another kind, or codes of other than N vectors of width D.
        """
        return cls(open_codes(path, settings, vectors), vectors, settings)

    def save(self, path: Path) -> None:
        """Write the index to `path` in FAISS's own format."""
        write_faiss(self._proposing, path)

    def with_settings(self, settings: ApproximateSettings) -> Self:
        """The same codes, searched with other `settings` of the same build."""
        return type(self)(self._proposing, self.vectors(), settings)

    def file_bytes(self) -> int:
        """The size of the file of `save`."""
        writer = faiss.VectorIOWriter()
        faiss.write_index(self._proposing, writer)
        return int(writer.data.size())

    @property
    def exact(self) -> ExactIndex:
        """The exact search over the same vectors."""
        return self._exact

    def search_params(self, k: int) -> SearchParams | None:
        """Between those of the settings; None beyond the largest k of them."""
        return self._params(k)

    def nearest(self, vector: NDArray[np.float32], k: int, allowed: RowMask | None = None) -> Found:
        """As `Index.nearest`; exact where k is beyond the settings, or too few allowed rows are proposed."""
        if allowed is None:
            return self.nearest_of_each(vector[None], k, 0)[0]
        k = min(k, allowed.count)
        params = self._params(k)
        if params is None or k == 0 or not self._takes_masks:
            return self._exact.nearest(vector, k, allowed)
        # So many lists that as many allowed rows are scored as otherwise rows of all.
        breadth = params.breadth * len(self) // allowed.count
        chosen = parameters(self.settings, breadth, sel=allowed.derived(_selector))
        (rows,) = self._propose(vector[None], min(params.candidates, allowed.count), chosen)
        return self._scored(vector, k, rows, allowed)

    def nearest_of_each(self, vectors: NDArray[np.float32], k: int, spare: int) -> list[Found]:
        """As `Index.nearest_of_each`: with the effort of the settings for `k`, `AT_ONCE` queries a call."""
        fetch = min(k + spare, len(self))
        params = self._params(min(k, fetch))
        if params is None or k == 0:
            return [self._exact.nearest(vector, fetch) for vector in vectors]
        candidates = min(max(params.candidates, fetch), len(self))
        found: list[Found] = []
        for start in range(0, len(vectors), AT_ONCE):
            few = vectors[start : start + AT_ONCE]
            proposed = self._propose(few, candidates, self._parameters(params.breadth))
            found += [
                self._scored(vector, fetch, rows, None) for vector, rows in zip(few, proposed, strict=True)
            ]
        return found

    def _propose(self, vectors: NDArray[np.float32], count: int, chosen: Any) -> NDArray[np.int64]:
        """The `count` best rows by the codes for each of vectors [B, D]: [B, count], -1 behind the last."""
        if self._missing:
            vectors = np.hstack([vectors, np.zeros((len(vectors), self._missing), np.float32)])
        rows = np.empty((len(vectors), count), dtype=np.int64)
        scores = np.empty((len(vectors), count), dtype=np.float32)
        into = faiss.swig_ptr(scores), faiss.swig_ptr(rows)
        # FAISS's own checks and copies take 5 us of a search of 10.
        self._proposing.search_c(len(vectors), faiss.swig_ptr(vectors), count, *into, chosen)
        return rows

    def _scored(
        self, vector: NDArray[np.float32], k: int, rows: NDArray[np.int64], allowed: RowMask | None
    ) -> Found:
        rows = rows if rows[-1] >= 0 else rows[rows >= 0]
        if len(rows) < k:
            return self._exact.nearest(vector, k, allowed)
        return ordered(rows, self._exact.scores(vector, rows), k)


def _selector(allowed: RowMask) -> Any:
    """The allowed rows as a bitmap. FAISS keeps no reference to it, so the caller must hold it."""
    return faiss.IDSelectorBitmap(np.packbits(allowed.mask, bitorder="little"))


def _params(efforts: Sequence[SearchParams], k: int) -> SearchParams | None:
    """The parameters for `k` rows, interpolated between those of the settings; None beyond the last."""
    below: SearchParams | None = None
    for above in efforts:
        if k <= above.k:
            return above if below is None else _between(below, above, k)
        below = above
    return None


def _between(below: SearchParams, above: SearchParams, k: int) -> SearchParams:
    share = (k - below.k) / (above.k - below.k)
    breadth = round(below.breadth + share * (above.breadth - below.breadth))
    candidates = round(below.candidates + share * (above.candidates - below.candidates))
    return SearchParams(k=k, breadth=breadth, candidates=candidates)
