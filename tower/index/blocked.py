"""The exact index for many queries at once: candidates by a matrix product, then their exact scores."""

from itertools import pairwise, starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.tower.index.faiss_calls import Found, faiss
from turret.tower.index.index import ExactIndex

# FAISS multiplies matrices from this many queries on; fewer are compared row by row, as the exact index does.
_LEAST = 20
# Candidates beyond the best k, so that the rounding of the product seldom decides which rows are among them.
_MARGIN = 8
# Beyond the best k rows, so many are fetched at first where rows are left out, and `_MORE` times as many for
# the few vectors without k sure rows then, up to `_MOST`.
_SPARE, _MORE, _MOST = 16, 4, 1_000
# A product has so many queries. On 27,000 items 2,048 queries take 44 microseconds each; 4,096 need more
# memory than a cache has, and take 49; FAISS ranks 1,024 otherwise, in 115.
_QUERIES = 2_048
_MARKS = 1 << 22  # bytes of marks of rows that are left out, which should stay in a processor's cache

Rows = NDArray[np.integer[Any]]


class BlockedIndex(ExactIndex):
    """Answers as `ExactIndex` does, bit for bit, several times as fast for many queries in one call.

    A matrix product sums in another order than the exact index, so the last bits of its scores differ, and
    with them the order of near ties. It therefore chooses candidates only: their scores are computed again as
    the exact index computes them. A query whose k-th score could be exceeded by a row outside of its
    candidates, within the rounding error of both sums, is searched for alone.
    """

    # A product of 500 queries takes twice as long for each as one of 4,000, and a few more rows cost little.
    fetch_step = 32

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        super().__init__(vectors)
        longest = max(
            (float(np.linalg.norm(part, axis=1).max()) for part in _parts(self._vectors)), default=0
        )
        # Each of the two sums of D products of vectors u and v is off by at most D 2^-24 |u| |v|, to first
        # order (Higham 2002, eq. 3.5); the factor of two covers the higher orders.
        self._error = 2 * self._dimension * 2.0**-23 * longest

    def nearest_of_each(self, vectors: NDArray[np.float32], k: int, spare: int = 0) -> list[Found]:
        """`nearest` for each of `vectors` [B, D], with the same answers."""
        k = min(k + spare, len(self))
        if len(vectors) < _LEAST or not k:
            return super().nearest_of_each(vectors, k)
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        rows, scores, bound = self._candidates(vectors, min(k + _MARGIN, len(self)))
        is_sure = scores[:, k - 1] > bound
        return [
            (rows[place, :k], scores[place, :k]) if sure else self.nearest(vectors[place], k)
            for place, sure in enumerate(is_sure.tolist())
        ]

    def nearest_without(
        self, vectors: NDArray[np.float32], k: int, owners: NDArray[np.int64], out: Rows
    ) -> Found:
        """The best `k` rows for each of `vectors` [B, D] without some: rows and inner products, both [B, k].

        Row `out[p]` is left out for the vector `owners[p]`; `owners` [P] ascend. Where fewer rows are left,
        the last ones are -1, with the product -inf. The answers are those of `nearest` without these rows.
        """
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        shape = len(vectors), k
        best, products = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        counts = np.bincount(owners, minlength=len(vectors))
        waiting, fetch = np.arange(len(vectors)), min(k + _SPARE, len(self))
        while len(waiting) >= _LEAST and fetch:
            rows, scores, bound = self._candidates(vectors[waiting], fetch)
            are_waiting = np.isin(owners, waiting) if len(waiting) < len(vectors) else slice(None)
            are_out = self._are_among(rows, np.searchsorted(waiting, owners[are_waiting]), out[are_waiting])
            order = np.argsort(are_out, axis=1, kind="stable")[:, :k]
            scores = np.take_along_axis(np.where(are_out, -np.inf, scores), order, axis=1)
            rows = np.where(scores > -np.inf, np.take_along_axis(rows, order, axis=1), -1)
            width = rows.shape[1]
            best[waiting, :width], products[waiting, :width] = rows, scores
            is_sure = (scores[:, -1] > bound) | np.isneginf(bound)
            waiting, fetch = waiting[~is_sure], min(_MORE * fetch, len(self))
            if fetch > _MOST:
                break
        starts = np.cumsum(counts) - counts
        for place in waiting.tolist():
            left_out = out[starts[place] : starts[place] + counts[place]]
            rows, scores = self.nearest(vectors[place], min(k + len(left_out), len(self)))
            keep = np.flatnonzero(~np.isin(rows, left_out))[:k]
            best[place], products[place] = -1, -np.inf
            best[place, : len(keep)], products[place, : len(keep)] = rows[keep], scores[keep]
        return best, products

    def _candidates(
        self, vectors: NDArray[np.float32], fetch: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float64]]:
        """Some `fetch` rows for each vector with their exact products, both [B, fetch], best first.

        All rows with a product above the bound [B] are among them: -inf where these are all rows.
        """
        rows = np.empty((len(vectors), fetch), np.int64)
        products, scores = np.empty((2, *rows.shape), np.float32)
        bounds = np.linspace(0, len(vectors), max(len(vectors) // _QUERIES, 1) + 1).astype(np.int64)
        for part in starmap(slice, pairwise(bounds.tolist())):
            query_pointer, row_pointer, *pointers = (
                faiss.swig_ptr(array[part]) for array in (vectors, rows, products, scores)
            )
            count = len(vectors[part])
            searched = query_pointer, self._pointer
            faiss.knn_inner_product(
                *searched, self._dimension, count, len(self), fetch, pointers[0], row_pointer
            )
            chosen = row_pointer, self._dimension, count, fetch
            faiss.fvec_inner_products_by_idx(pointers[1], *searched, *chosen)
        # The least candidate's product bounds those of all other rows.
        bound = products.min(axis=1).astype(np.float64) + self._error * np.linalg.norm(vectors, axis=1)
        order = np.argsort(-scores, axis=1)
        ordered = np.take_along_axis(scores, order, axis=1)
        # A sort by two keys takes ten times as long, and few vectors have candidates that tie.
        ties = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        order[ties] = np.lexsort((rows[ties], -scores[ties]))
        return (
            np.take_along_axis(rows, order, axis=1),
            ordered,
            bound if fetch < len(self) else bound - np.inf,
        )

    def _are_among(self, rows: NDArray[np.int64], owners: NDArray[np.int64], out: Rows) -> NDArray[np.bool_]:
        """Which of `rows` [B, M] are left out: row `out[p]` for the vector `owners[p]`."""
        are_among = np.empty(rows.shape, dtype=np.bool_)
        size = max(_MARKS // len(self), 1)
        marks = np.zeros((size, len(self)), dtype=np.bool_)
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            some = slice(*np.searchsorted(owners, (first, first + size)))
            marked = owners[some] - first, out[some]
            marks[marked] = True
            are_among[part] = np.take_along_axis(marks[: len(rows[part])], rows[part], axis=1)
            marks[marked] = False
        return are_among


def _parts(vectors: NDArray[np.float32], size: int = 1 << 16) -> list[NDArray[np.float32]]:
    """Views of the vectors in parts, so that a pass over them makes no large copy."""
    return [vectors[first : first + size] for first in range(0, len(vectors), size)]
