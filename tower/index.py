"""Exact search for the largest inner products."""

from pathlib import Path
from typing import Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from tower.errors import BundleError


class Index(Protocol):
    """What every index promises: k rows come back if k allowed rows exist."""

    @property
    def is_exact(self) -> bool:
        """Whether it always finds the best."""

    def search(
        self, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The rows of the largest inner products with `vectors` [B, D], and these: both [B, k']."""


class ExactIndex:
    """Every vector compared with every query (FAISS `IndexFlatIP`).

    Ties have a stated order: higher scores first, then lower rows first, also where the tie is cut. Each
    query is searched on its own, so that it gets the same answer whatever it is batched with.
    """

    is_exact = True

    def __init__(self, index: faiss.IndexFlatIP) -> None:
        self._index = index

    @classmethod
    def build(cls, vectors: NDArray[np.float32]) -> "ExactIndex":
        """Index `vectors` [N, D] as they are; row n is vector n."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return cls(index)

    @classmethod
    def load(cls, path: Path) -> "ExactIndex":
        """Read what `save` wrote. Raises BundleError when `path` holds anything else."""
        # A crafted header could otherwise ask for terabytes; no vector in a file is larger than the file.
        faiss.set_deserialization_vector_byte_limit(path.stat().st_size)
        try:
            index = faiss.read_index(str(path))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise BundleError(f"{path} is not a FAISS index ({reason}); export the bundle again") from None
        if not isinstance(index, faiss.IndexFlatIP):
            raise BundleError(f"{path} holds a {type(index).__name__}; this version serves IndexFlatIP only")
        return cls(index)

    def save(self, path: Path) -> None:
        """Write the index to `path` in FAISS's own format."""
        faiss.write_index(self._index, str(path))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """The width D of the vectors."""
        return int(self._index.d)

    def vectors(self) -> NDArray[np.float32]:
        """Return the indexed vectors [N, D] without copying them."""
        flat: NDArray[np.float32] = faiss.rev_swig_ptr(self._index.get_xb(), len(self) * self.dimension)
        return flat.reshape(len(self), self.dimension)

    def search(
        self, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the rows with the largest inner products.

        `vectors` is [B, D] and finite; `allowed` [N] says which rows may be found (all of them if None).
        Returns rows and inner products, both [B, k'], where k' is k or the number of allowed rows if that is
        less. Raises ValueError for a k below 1 or vectors that are not finite.
        """
        if k < 1 or not np.isfinite(vectors).all():
            raise ValueError(f"a search needs k >= 1 and finite vectors, not k = {k} and {vectors!r}")
        count = len(self) if allowed is None else int(np.count_nonzero(allowed))
        k = min(k, count)
        rows = np.empty((len(vectors), k), dtype=np.int64)
        scores = np.empty((len(vectors), k), dtype=np.float32)
        if k:
            parameters = None if allowed is None else _only(allowed)
            for place, vector in enumerate(np.ascontiguousarray(vectors, dtype=np.float32)):
                rows[place], scores[place] = self._search_one(vector[None], k, count, parameters)
        return rows, scores

    def _search_one(
        self, vector: NDArray[np.float32], k: int, count: int, parameters: faiss.SearchParameters | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Fetch one more than asked for, and ever more while the cut goes through a tie."""
        fetch = min(k + 1, count)
        scores, rows = self._index.search(vector, fetch, params=parameters)
        while fetch < count and scores[0, -1] == scores[0, k - 1]:
            fetch = min(2 * fetch, count)
            scores, rows = self._index.search(vector, fetch, params=parameters)
        order = np.lexsort((rows[0], -scores[0]))[:k]
        return rows[0, order], scores[0, order]


def _only(allowed: NDArray[np.bool_]) -> faiss.SearchParameters:
    # The stubs know only the C++ signature; the Python one takes an array and keeps it alive.
    selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))  # type: ignore[call-arg, arg-type]
    return faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]
