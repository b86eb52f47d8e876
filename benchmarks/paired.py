"""Is one model better than another on the same questions? Bootstrap intervals of the difference."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

REPLICATES, CONFIDENCE, SEED = 1000, 0.95, 0
DRAWS_AT_ONCE = 10_000_000


def difference(
    ours: ArrayLike, theirs: ArrayLike, groups: ArrayLike, replicates: int = REPLICATES
) -> dict[str, float]:
    """The mean of `ours` - `theirs` over questions, with its 95 % percentile interval (Efron 1979).

    Whole groups are drawn, as the questions of one user or one session are not independent; each draw's mean
    is the ratio of its sum to its number of questions. All three have one entry a question.
    """
    apart = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    sums, counts = np.bincount(group, weights=apart), np.bincount(group)
    means = _resampled(np.asarray(sums, dtype=np.float64), counts, replicates)
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return {"difference": float(apart.mean()), "low": float(low), "high": float(high)}


def _resampled(sums: NDArray[np.float64], counts: NDArray[np.int64], replicates: int) -> NDArray[np.float64]:
    """The means of as many draws of all groups, with replacement."""
    random = np.random.default_rng(SEED)
    block = max(1, DRAWS_AT_ONCE // len(sums))
    means = []
    for first in range(0, replicates, block):
        drawn = random.integers(len(sums), size=(min(block, replicates - first), len(sums)))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    return np.concatenate(means)
