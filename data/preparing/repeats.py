"""The share of events that repeat an item of their user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import Events
from turret.data.histories.build_histories import BuiltHistories


@dataclass(frozen=True)
class Repeats:
    """Counts of a log.

    Attributes:
        share: the share of all events whose user has an earlier event of the same item.
        targets: the distinct items of each user in the test part.
        repeated_targets: those that the user has used before it.
    """

    share: float
    targets: int
    repeated_targets: int


def count_repeats(built: BuiltHistories, splits: NDArray[np.int64]) -> Repeats:
    """Count the repeats of a log; `splits` as in `data.prepared.PreparedData`."""
    counts = built.histories.by_block(
        lambda block: repeats_of(block.events, splits[block.users] - block.start)
    )
    distinct, targets, repeated = np.sum(list(counts), axis=0).tolist()
    return Repeats(1.0 - distinct / len(built.histories), targets, repeated)


def repeats_of(events: Events, splits: NDArray[np.int64]) -> tuple[int, int, int]:
    """Count the distinct items of each user, those in the test part, and the latter used before it.

    `events` are sorted, with `splits` int64 [U, 2].
    """
    is_test = np.arange(len(events)) >= splits[events.users, 1]
    uses = events.users.astype(np.int64) << 32 | events.items.astype(np.int64) << 1 | is_test
    # All uses of an item by a user are now adjacent, those in the test last.
    uses.sort()
    pairs = uses >> 1
    is_first, is_last = np.diff(pairs, prepend=-1) != 0, np.diff(pairs, append=-1) != 0
    is_used, is_target = uses[is_first] & 1 == 0, uses[is_last] & 1 == 1
    return int(is_first.sum()), int(is_target.sum()), int((is_target & is_used).sum())
