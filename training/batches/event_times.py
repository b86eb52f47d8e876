"""Times of events: the inputs of towers that read times, and the start time of training.

Timestamps are seconds since 1970.
"""

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.moments import FORMS, as_number, milliseconds_of, parse_moment
from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.tower.times import Seconds, time_inputs
from turret.training.errors import TrainingError
from turret.training.used_items import Targets

Positions = NDArray[np.int64]

_USERS_A_BLOCK = 65536


def seconds(data: PreparedData, positions: Positions) -> Seconds:
    """The timestamps of events at `positions` [P]; `data` has real times."""
    return np.asarray(data.times[positions], dtype=np.float64) / 1000.0


def request_times(data: PreparedData, users: Positions, ends: Positions) -> Seconds:
    """The assumed times of requests by `users` [S] after their events up to `ends` [S]: float64 [S]."""
    return request_moments(data, users, ends) / 1000.0


def request_moments(data: PreparedData, users: Positions, ends: Positions) -> NDArray[np.float64]:
    """The assumed times of requests, as of `request_times`, in the unit of `data.times`.

    A request is at the time of the user's next event; after the last event, at the end of the log.
    """
    following = data.times[np.minimum(ends, len(data.times) - 1)].astype(np.float64)
    return np.where(ends < data.offsets[users + 1], following, float(data.manifest.time.last))


def packed_times(
    data: PreparedData, users: Positions, starts: Positions, ends: Positions
) -> tuple[Tensor, Tensor]:
    """The gaps and clocks of the events `starts[s]:ends[s]` of `users[s]`, at least one each, concatenated.

    Each event is followed by the user's next event; see `tower.layers.packed.PackedHistories`.

    Returns:
        float32 [P] and float32 [P].
    """
    lengths = ends - starts
    event_times = seconds(data, ranges(starts, lengths))
    next_times = np.append(event_times[1:], 0.0)
    next_times[np.cumsum(lengths) - 1] = request_times(data, users, ends)
    gaps, clocks = time_inputs(event_times, next_times)
    return torch.from_numpy(gaps), torch.from_numpy(clocks)


def first_events(data: PreparedData, start_time: str | float) -> Positions:
    """The position of each user's first training event from `start_time` on, else of their end: int64 [U].

    Args:
        data: prepared data with times.
        start_time: a date with or without a time (UTC unless it has an offset), seconds, milliseconds or
            microseconds since 1970, or a duration such as 30d before the last training event; a number where
            the order column holds plain numbers.

    Raises:
        TrainingError: the data has no times, or `start_time` is not a value of their kind.
    """
    return first_since(data, _as_stored(data, start_time))


def first_since(data: PreparedData, bound: float) -> Positions:
    """The same, from `bound` on, in the unit of `data.times`."""
    begins, ends = (np.asarray(bounds) for bounds in data.bounds("train"))
    firsts = np.empty(len(begins), dtype=np.int64)
    for first in range(0, len(begins), _USERS_A_BLOCK):
        block = slice(first, first + _USERS_A_BLOCK)
        lengths = ends[block] - begins[block]
        older = data.times[ranges(begins[block], lengths)] < bound
        counts = np.concatenate([[0], np.cumsum(older)])
        edges = np.concatenate([[0], np.cumsum(lengths)])
        firsts[block] = begins[block] + np.diff(counts[edges])
    return firsts


def _as_stored(data: PreparedData, start_time: str | float) -> float:
    """`start_time` in the unit of `times.npy`."""
    time = data.manifest.time
    setting = f"training.since = {start_time!r}"
    if time.kind == "position":
        raise TrainingError(
            f"{setting} needs times, and {data.folder} has only an order; prepare the data with a column of "
            "times (--time), or leave since out."
        )
    if time.kind == "number":
        number = as_number(start_time)
        if number is None:
            raise TrainingError(
                f"{setting}: the order column of {data.folder} holds plain numbers, from {time.first:g} to "
                f"{time.last:g}; give a number."
            )
        return number
    with suppress(ValueError):
        return Targets(data, None).newest - milliseconds_of(str(start_time))
    milliseconds = parse_moment(start_time)
    if milliseconds is None:
        raise TrainingError(f"{setting} is no date or time; {FORMS}, or as the newest 12h or 30d.")
    return milliseconds
