"""FAISS's own C++ calls for one query after the other, without what Python adds to each.

A search of a small catalogue takes as long as the arrays, the pointers and the checks around it. Here arrays
and pointers are made once, and SWIG is given the pointers themselves: from an object of its Python classes it
has to fetch them first, which for six arguments takes a microsecond.
"""

import sys
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tower.indexes.untyped import faiss


class SingleSearch:
    """`index.search` for one query of the index's width, the best `fetch`, with search `parameters`.

    A query is shorter where the index has more columns, which are 0 in every query. Not for several threads:
    each has its own.
    """

    def __init__(self, index: Any, fetch: int, parameters: Any) -> None:
        query = np.zeros((1, index.d), dtype=np.float32)
        rows, scores = np.empty((1, fetch), dtype=np.int64), np.empty((1, fetch), dtype=np.float32)
        self._query, self._rows = query[0], rows[0]
        # The index and the parameters must outlive the pointers to them.
        self._held = index, parameters, scores
        self._call = partial(
            method(index, "search"),
            pointer(index),
            1,
            faiss.swig_ptr(query),
            fetch,
            faiss.swig_ptr(scores),
            faiss.swig_ptr(rows),
            pointer(parameters),
        )

    def rows(self, vector: NDArray[np.float32]) -> NDArray[np.int64]:
        """The rows that are found for `vector`, -1 where there are no more; of this search until the next."""
        self._query[: len(vector)] = vector
        self._call()
        return self._rows


class ScoresByRow:
    """The inner products of one query with `count` of `vectors` [N, D], which must outlive it."""

    def __init__(self, vectors: NDArray[np.float32], count: int) -> None:
        query, rows = np.empty(vectors.shape[1], dtype=np.float32), np.empty(count, dtype=np.int64)
        scores = np.empty(count, dtype=np.float32)
        self._query, self._rows, self._scores, self._held = query, rows, scores, vectors
        self._call = partial(
            raw().fvec_inner_products_by_idx,
            faiss.swig_ptr(scores),
            faiss.swig_ptr(query),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(rows),
            vectors.shape[1],
            1,
            count,
        )

    def __call__(self, vector: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The products of `vector` [D] with the vectors of `rows` [count]; of this call until the next."""
        self._query[:] = vector
        self._rows[:] = rows
        self._call()
        return self._scores


def raw() -> Any:
    """The module of C functions that FAISS's Python classes call."""
    return sys.modules["faiss._swigfaiss"]


def method(index: Any, name: str) -> Any:
    """The C function behind a method of an index: that of the class which defines it."""
    functions = raw()
    for kind in type(index).__mro__:
        found = getattr(functions, f"{kind.__name__}_{name}", None)
        if found is not None:
            return found
    raise AttributeError(f"FAISS has no function {name} of a {type(index).__name__}")


def pointer(made: Any) -> Any:
    """What SWIG passes on of an object of its own."""
    return None if made is None else made.this
