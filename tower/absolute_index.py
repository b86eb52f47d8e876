"""Search by the largest inner products of either sign, as the absolute softmax ranks."""

import numpy as np
from numpy.typing import NDArray

from tower.index import Index
from tower.manifest import Scoring


class AbsoluteIndex:
    """An index asked for h and for -h, and the answers merged (Blanc & Rendle 2018, eq. 11).

    A row among the best k by |<h, w>| is also among the best k by <h, w> or by <-h, w>, so two searches of k
    find them all, ties included.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    @property
    def is_exact(self) -> bool:
        """As the index that is asked."""
        return self._index.is_exact

    def search(
        self, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """As `Index.search`, with the inner products without their signs: each row once, best first."""
        near = self._index.search(vectors, k, allowed)
        far = self._index.search(-vectors, k, allowed)
        rows, products = np.empty_like(near[0]), np.empty_like(near[1])
        for place in range(len(vectors)):
            found, first = np.unique(np.concatenate([near[0][place], far[0][place]]), return_index=True)
            sizes = np.abs(np.concatenate([near[1][place], far[1][place]]))[first]
            order = np.lexsort((found, -sizes))[: rows.shape[1]]
            rows[place], products[place] = found[order], sizes[order]
        return rows, products


def scored_index(index: Index, scoring: Scoring) -> Index:
    """The index as it has to be asked for items to come in the order of their scores."""
    return AbsoluteIndex(index) if scoring.absolute else index
