"""The share of events that repeat an item of their user, in the same visit and in a later one."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.data.events.event_arrays import Events
from turret.data.histories.build_histories import BuiltHistories

VISIT_GAP = 30 * 60_000
"""The milliseconds without an event of a user that end a visit: the half hour of web analytics."""
_LEAST_LATER = 0.01


@dataclass(frozen=True)
class Repeats:
    """Counts of a log.

    Attributes:
        share: the share of all events whose user has used the item in an earlier visit.
        in_visit: the share of all other events that repeat an item of their user, such as a purchase after
            a view.
        targets: the distinct items of each user in the test part.
        repeated_targets: those that the user has used before it.
    """

    share: float
    in_visit: float
    targets: int
    repeated_targets: int


def count_repeats(
    built: BuiltHistories, splits: NDArray[np.int64], has_times: bool, has_kinds: bool
) -> Repeats:
    """Count the repeats of a log; `splits` as in `data.prepared.PreparedData`.

    Without times all events count as visits of their own. So they do where hardly any user has a second
    visit, as with sessions for users or with numbers for times, unless kinds of events tell a funnel.
    """
    gap = VISIT_GAP if has_times else -math.inf
    counts = built.histories.by_block(
        lambda block: repeats_of(block.events, splits[block.users] - block.start, gap)
    )
    uses, visited, later, targets, repeated = np.sum(list(counts), axis=0).tolist()
    events = len(built.histories)
    if not has_kinds and later < _LEAST_LATER * events:
        visited = events
    return Repeats((visited - uses) / events, 1.0 - visited / events, targets, repeated)


def repeats_of(events: Events, splits: NDArray[np.int64], gap: float) -> tuple[int, int, int, int, int]:
    """Count the distinct items of each user and of each visit, and the events of later visits than the first.

    Also the distinct items of each user in the test part, and those of them that were used before it. A visit
    ends where a user has no event for `gap`. `events` are sorted, with `splits` int64 [U, 2].
    """
    is_test = np.arange(len(events)) >= splits[events.users, 1]
    uses = events.users.astype(np.int64) << 32 | events.items.astype(np.int64) << 1 | is_test
    # All uses of an item by a user are now adjacent, those in the test last.
    uses.sort()
    pairs = uses >> 1
    is_first, is_last = np.diff(pairs, prepend=-1) != 0, np.diff(pairs, append=-1) != 0
    is_used, is_target = uses[is_first] & 1 == 0, uses[is_last] & 1 == 1
    is_begun = np.diff(events.users, prepend=-1) != 0
    visits = np.cumsum(is_begun | (np.diff(events.times, prepend=0) >= gap))
    first_visits = visits[is_begun][np.cumsum(is_begun) - 1]
    visited = np.unique(visits << 32 | events.items)
    return (
        int(is_first.sum()),
        len(visited),
        int((visits > first_visits).sum()),
        int(is_target.sum()),
        int((is_target & is_used).sum()),
    )
