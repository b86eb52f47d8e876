"""The items that answers leave out because of earlier events of the user."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from turret.data.histories.duplicates import Merging
from turret.data.kinds import Seen, left_out_for, negative_kinds
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.ranges import ranges
from turret.tower.repeats import Events
from turret.training.batches.event_times import request_moments, request_times, seconds
from turret.training.used_items import kind_spans

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Users and items: the index in [U] and the item row, int64 [M] each."""


def history_bounds(data: PreparedData, users: NDArray[np.int64], until: HistoryEnd) -> Pairs:
    """The first and one past the last position of the events of `users` [U] before `until`: two int64 [U]."""
    return np.asarray(data.offsets[users]), np.asarray(data.history_ends(until)[users])


def uses_of(
    data: PreparedData, users: NDArray[np.int64], until: HistoryEnd, most: int | None = None
) -> Events:
    """The uses of items by `users` [U] before `until`; the request is at the time of the user's next event.

    With `most`, only the newest `most` events of each user are read.
    """
    starts, ends = history_bounds(data, users, until)
    starts = starts if most is None else np.maximum(starts, ends - most)
    positions = ranges(starts, ends - starts)
    is_timed = data.manifest.time.kind == "timestamp"
    return Events(
        rows=data.event_items[positions].astype(np.int64),
        lengths=ends - starts,
        times=seconds(data, positions) if is_timed else None,
        request_times=request_times(data, users, ends) if is_timed else None,
        kinds=None if data.kinds is None else data.kinds[positions].astype(np.int64),
    ).uses(Merging.of_data(data.manifest))


def used_pairs(data: PreparedData, users: NDArray[np.int64], until: HistoryEnd) -> Pairs:
    """The used items of `users` [U] before `until`, once for each use."""
    uses = uses_of(data, users, until)
    return np.repeat(np.arange(len(users)), uses.lengths), uses.rows


def seen_pairs(data: PreparedData, users: NDArray[np.int64], until: HistoryEnd) -> Pairs:
    """The items of the events of `users` [U] before `until`, once for each event."""
    starts, ends = history_bounds(data, users, until)
    indices = np.repeat(np.arange(len(users)), ends - starts)
    return indices, data.event_items[ranges(starts, ends - starts)].astype(np.int64)


def left_out_pairs(data: PreparedData, users: NDArray[np.int64], until: HistoryEnd, seen: Seen) -> Pairs:
    """The items that answers to `users` [U] leave out when the first target of the part `until` comes.

    The items are those of events before that target and of negatives given until then, for as long as their
    kinds say (`data.kinds.left_out_for`); in data without timestamps, they are left out for ever.
    """
    spans, kinds = kind_spans(data, seen), data.manifest.kinds
    starts, ends = history_bounds(data, users, until)
    owners, events = np.repeat(np.arange(len(users)), ends - starts), ranges(starts, ends - starts)
    items = data.event_items[events].astype(np.int64)
    if data.kinds is None:
        return (owners, items) if spans[-1] > 0 else (owners[:0], items[:0])
    lasting, times, negative = spans[data.kinds[events]], data.times[events], negative_kinds(kinds)
    if negative:  # these kinds have the codes -1, -2 and so on; a negative of another kind has a label
        by_code = np.append(0.0, left_out_for(kinds, seen, negative)[:-1])
        negatives = data.given_negatives(users, ends)
        lasting = np.append(lasting, by_code[-np.minimum(negatives.kinds, 0)])
        owners, items = np.append(owners, negatives.owners), np.append(items, negatives.items)
        times = np.append(times, negatives.times)
    are_left_out = lasting > 0
    if data.manifest.time.kind == "timestamp":
        are_left_out &= request_moments(data, users, ends)[owners] - times < lasting
    return owners[are_left_out], items[are_left_out]


def mask(scores: Tensor, pairs: Pairs) -> None:
    """Set the scores [U, N] of these pairs to minus infinity, in place."""
    indices, rows = map(from_numpy, pairs)
    scores[indices, rows] = float("-inf")
