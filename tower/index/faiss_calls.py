"""FAISS's C++ calls for a few queries, without the overhead of its Python layer, and the order of answers."""

import sys
from functools import partial
from math import isfinite
from typing import Any

import faiss as _faiss
import numpy as np
from numpy.typing import NDArray

faiss: Any = _faiss


Found = tuple[NDArray[np.int64], NDArray[np.float32]]


def ordered(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Found:
    """The best `k` of rows [M] and their scores [M], in the stated order."""
    order = np.lexsort((rows, -scores))[:k]
    return rows[order], scores[order]


def has_ties(scores: NDArray[np.float32]) -> bool:
    """Whether two of the scores [M] are equal."""
    listed = scores.tolist()
    return len(set(listed)) < len(listed)


def check_finite(vector: NDArray[np.float32]) -> None:
    """Raise ValueError unless the numbers of a contiguous vector [D], or of several [V, D], are finite."""
    # FAISS's sum of squares costs a third of a look at each number; only a huge vector needs that look.
    squares = faiss.fvec_norm_L2sqr(faiss.swig_ptr(vector), vector.size)
    if not isfinite(squares) and not np.isfinite(vector).all():
        raise ValueError(f"a search needs a finite vector, not {vector!r}")


AT_ONCE = 16  # queries


class RefinedSearch:
    """A FAISS index that proposes rows, and vectors [N, D] that decide between them, asked in one call."""

    def __init__(self, proposing: Any, vectors: NDArray[np.float32]) -> None:
        self._refined = faiss.IndexRefine(proposing, _flat(vectors))
        # FAISS keeps no reference to either.
        self._held = proposing, vectors

    def search(self, k: int, candidates: int, parameters: Any) -> "FixedSearch":
        """A search for the best `k` by inner product of the best `candidates` that are proposed."""
        # FAISS multiplies by k again, in float32, and truncates the fraction.
        refining = faiss.IndexRefineSearchParameters(
            k_factor=(candidates + 0.5) / k, base_index_params=parameters
        )
        return FixedSearch(self._refined, k, refining)


class FixedSearch:
    """`index.search` for the best `k` with search `parameters`, of at most `AT_ONCE` queries a call.

    Codes that several queries are compared with are read once. Not for several threads: each has its own.
    """

    def __init__(self, index: Any, k: int, parameters: Any) -> None:
        self._queries = np.zeros((AT_ONCE, index.d), dtype=np.float32)
        self._rows, self._scores = np.empty((AT_ONCE, k), np.int64), np.empty((AT_ONCE, k), np.float32)
        # The index and the parameters must outlive the pointers to them.
        self._held = index, parameters
        self._search = partial(_method(index, "search"), index.this)
        self._arguments = (
            faiss.swig_ptr(self._queries),
            k,
            faiss.swig_ptr(self._scores),
            faiss.swig_ptr(self._rows),
            None if parameters is None else parameters.this,
        )

    def __call__(self, vectors: NDArray[np.float32]) -> Found:
        """Rows and scores [B, k] for `vectors` [B, D], by falling score; ties in any order, -1: no more."""
        count = len(vectors)
        self._queries[:count] = vectors
        self._search(count, *self._arguments)
        return self._rows[:count].copy(), self._scores[:count].copy()


def _flat(vectors: NDArray[np.float32]) -> Any:
    """A flat index of contiguous `vectors` [N, D] where they lie, without a copy."""
    flat = faiss.IndexFlatIP(vectors.shape[1])
    codes, bytes_of = flat.codes, faiss.swig_ptr(vectors.reshape(-1).view(np.uint8))
    codes.is_owned = False
    codes.view_data = codes.c_ptr = bytes_of
    codes.view_size = codes.c_size = vectors.nbytes
    flat.ntotal = len(vectors)
    return flat


def _method(index: Any, name: str) -> Any:
    """The C function behind a method of an index: that of the class which defines it."""
    functions = sys.modules["faiss._swigfaiss"]
    for kind in type(index).__mro__:
        found = getattr(functions, f"{kind.__name__}_{name}", None)
        if found is not None:
            return found
    raise AttributeError(f"FAISS has no function {name} of a {type(index).__name__}")
