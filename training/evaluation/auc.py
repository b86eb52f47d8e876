"""The AUC of targets against their given negatives."""

import numpy as np
from numpy.typing import NDArray

from turret.data.prepared import Part, PreparedData
from turret.data.ranges import ranges
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.ranking import USERS_A_BLOCK, ScoresOf


def users_with_negatives(data: PreparedData, part: Part) -> NDArray[np.int64]:
    """The rows of users with a target in `part` that has a negative: int64, ascending."""
    if data.negatives is None:
        return np.empty(0, dtype=np.int64)
    starts, ends = data.bounds(part)
    return np.flatnonzero(data.negatives.offsets[ends] > data.negatives.offsets[starts])


def auc_of_users(scores_of: ScoresOf, data: PreparedData, part: Part, users: NDArray[np.int64]) -> Values:
    """The AUC of each of `users` [U], of `users_with_negatives`: float64 [U].

    The share of the pairs of an event in `part` and one of its negatives in which the event has the higher
    score; a tie counts a half. Without the other pairs, it is the AUC of the offered items.

    Source: Zhu et al. 2017 (GAUC), with the same weight for each user.
    """
    values = [np.empty(0)]
    for first in range(0, len(users), USERS_A_BLOCK):
        block = users[first : first + USERS_A_BLOCK]
        owners, events, negatives = _pairs(data, part, block)
        scores = scores_of(block).numpy()
        higher, lower = scores[owners, events], scores[owners, negatives]
        points = (higher > lower) + 0.5 * (higher == lower)
        values.append(np.bincount(owners, points, len(block)) / np.bincount(owners, minlength=len(block)))
    return np.concatenate(values)


def _pairs(data: PreparedData, part: Part, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Index among `users`, item of the event and item of the negative, of all pairs: three int64 [P]."""
    assert data.negatives is not None
    starts, ends = (np.asarray(bound[users]) for bound in data.bounds(part))
    positions = ranges(starts, ends - starts)
    firsts = np.asarray(data.negatives.offsets[positions])
    counts = np.asarray(data.negatives.offsets[positions + 1]) - firsts
    owners = np.repeat(np.repeat(np.arange(len(users)), ends - starts), counts)
    events = np.repeat(data.event_items[positions].astype(np.int64), counts)
    return owners, events, data.negatives.items[ranges(firsts, counts)].astype(np.int64)
