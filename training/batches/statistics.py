"""Item counts of the training part of prepared data, as samplers need them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.tower.towers.user import Context
from turret.training.batches.batches import target_counts

_USERS_A_BLOCK = 65536


@dataclass(frozen=True)
class PreparedStatistics:
    """Item counts of `data`, where towers read histories as `context` says.

    `start_time` is that of training: only events from then on are positives.
    """

    data: PreparedData
    context: Context = "causal_window"
    start_time: str | float | None = None

    @property
    def item_count(self) -> int:
        """N."""
        return len(self.data.item_ids)

    def item_counts(self) -> NDArray[np.int64]:
        """How many training events each item has: int64 [N]."""
        return self.data.item_counts()

    def target_counts(self) -> NDArray[np.int64]:
        """How many training events of each item can be predicted, at any time: int64 [N]."""
        return target_counts(self.data, self.context)

    def positive_counts(self) -> NDArray[np.int64]:
        """How many training examples have each item as their positive: int64 [N]."""
        return target_counts(self.data, self.context, self.start_time)

    def bigram_counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sorted pairs previous * N + next of consecutive events, int64 [P], and their counts [P]."""
        pairs, counts = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        starts, ends = self.data.bounds("train")
        for first in range(0, len(starts), _USERS_A_BLOCK):
            block = slice(first, first + _USERS_A_BLOCK)
            begins, lengths = np.asarray(starts[block]), np.asarray(ends[block] - starts[block])
            positions = ranges(begins, np.maximum(lengths - 1, 0))
            items, following = self.data.event_items[positions], self.data.event_items[positions + 1]
            pairs, counts = _added(pairs, counts, items.astype(np.int64) * self.item_count + following)
        return pairs, counts


def _added(
    pairs: NDArray[np.int64], counts: NDArray[np.int64], more: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counted `pairs` with each of `more` counted as well."""
    together = np.concatenate([pairs, more])
    once = np.concatenate([counts, np.ones(len(more), dtype=np.int64)])
    distinct, positions = np.unique(together, return_inverse=True)
    # Sums of float64 are exact far beyond any number of events.
    return distinct, np.bincount(positions, weights=once, minlength=len(distinct)).astype(np.int64)
