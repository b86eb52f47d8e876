"""An index over vectors of any model: `turret.choose_index`. It needs no extra."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from turret.arguments import as_mask, as_vectors, checked
from turret.data.errors import TurretError
from turret.tower.config import ScoringConfig
from turret.tower.index.index import Index
from turret.tower.tuning.choice import IndexRequest, choose


@dataclass(frozen=True)
class VectorIndex:
    """A maximum inner product index with its measured recall.

    `kind` is one of docs/vector_index.md, `recall` the lowest measured recall; `reasons` explain the choice.
    """

    kind: str
    recall: float
    reasons: tuple[str, ...]
    index: Index

    @checked
    def search(
        self, queries: ArrayLike, k: int, allowed: ArrayLike | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows and inner products [B, k] of the largest inner products, best first.

        `queries` are float32 [B, D], or one [D]. `allowed` (bool [N]) masks the rows; if fewer than k are
        allowed, the result has as many columns as rows are allowed. Raises TurretError for k < 1, queries of
        another shape, and vectors that are not finite.
        """
        vectors, width = _within("queries", queries), self.index.vectors().shape[1]
        if vectors.shape[1] != width or k < 1:
            raise TurretError(
                f"queries {vectors.shape} and k = {k} don't fit; give [B, {width}] and k of at least 1"
            )
        mask = None if allowed is None else as_mask("allowed", allowed, len(self.index))
        return self.index.search(vectors, min(k, len(self.index)), mask)


@checked
def choose_index(
    vectors: ArrayLike, queries: ArrayLike, *, recall: float = 0.99, kind: str = "auto"
) -> VectorIndex:
    """Build the fastest index that reaches `recall`, measured on real queries.

    Args:
        vectors: item vectors, float32 [N, D].
        queries: user vectors, float32 [Q, D]; a hundred or more measure the recall within .006.
        recall: the lowest recall against exact search, at the k and selectivities of docs/vector_index.md.
        kind: `auto`, or a kind of docs/vector_index.md.

    Raises:
        TurretError: shapes don't fit, a vector is not finite, or `kind` is unknown or misses the recall.
    """
    items, users = _within("vectors", vectors), _within("queries", queries)
    if items.shape[1] != users.shape[1]:
        raise TurretError(
            f"vectors {items.shape} and queries {users.shape} don't fit; give [N, D] and [Q, D] of one D"
        )
    if not (len(items) and len(users)):
        raise TurretError("an index needs at least one item and one query")
    chosen = choose(items, users, ScoringConfig(kind="dot", temperature=1.0), IndexRequest(kind, recall))
    lowest = min((measured.recall for measured in chosen.recall), default=1.0)
    return VectorIndex(chosen.built_index.settings.kind, lowest, chosen.choice.words, chosen.built_index)


def _within(name: str, values: ArrayLike) -> NDArray[np.float32]:
    """Like `as_vectors`, but refuses numbers so large that inner products may exceed float32."""
    vectors = as_vectors(name, values)
    largest = float(np.sqrt(np.finfo(np.float32).max / max(1, vectors.shape[1])))
    if vectors.size and np.abs(vectors).max() > largest:
        raise TurretError(
            f"{name} has numbers beyond {largest:.0e}, whose inner products exceed float32; divide vectors "
            "and queries by a constant, which changes no ranking"
        )
    return vectors
