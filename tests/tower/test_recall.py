import numpy as np
from numpy.typing import NDArray

from tower.absolute_index import AbsoluteIndex
from tower.index import ExactIndex
from tower.recall import measure_recall

VECTORS = np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)


class Forgetful(ExactIndex):
    """Finds what an exact index finds from the tenth place on."""

    def search(
        self, vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows, scores = super().search(vectors, k + 9, allowed)
        return rows[:, -k:], scores[:, -k:]


def test_the_exact_index_finds_everything() -> None:
    measured = measure_recall(ExactIndex.build(VECTORS), VECTORS, VECTORS[:5], (10, 50), (1.0, 0.1))
    assert [(one.k, one.selectivity, one.recall) for one in measured] == [
        (10, 1.0, 1.0),
        (50, 1.0, 1.0),
        (10, 0.1, 1.0),
    ]


def test_what_an_index_misses_is_measured() -> None:
    forgetful = Forgetful(ExactIndex.build(VECTORS)._index)
    measured = measure_recall(forgetful, VECTORS, VECTORS[:5], (10, 100), (1.0,))
    assert [one.recall for one in measured] == [0.1, 0.91]


def test_recall_without_signs_counts_the_far_side() -> None:
    """An index that is only asked for one side misses about half of what is best."""
    both, one_side = AbsoluteIndex(ExactIndex.build(VECTORS)), ExactIndex.build(VECTORS)
    (whole,) = measure_recall(both, VECTORS, VECTORS[:5], (50,), (1.0,), absolute=True)
    (half,) = measure_recall(one_side, VECTORS, VECTORS[:5], (50,), (1.0,), absolute=True)
    assert whole.recall == 1.0
    assert half.recall < 0.8
