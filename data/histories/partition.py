"""The split of histories into parts, as configured, and its description.

`splits` int64 [U, 2] are the absolute ends of each user's train and validation part in events that are sorted
by user and, within a user, by part and time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data import manifest
from turret.data.errors import ConfigurationError, EmptyDataError
from turret.data.histories.histories import Block, Histories
from turret.data.prepared import PARTS
from turret.data.reading.schema import FilesSplit, LastSplit, QuerySplit, TimeSplit
from turret.data.reading.times import TimeReader, parse_time

MINIMUM_EVENTS_TO_SPLIT = 3


def last_out(offsets: NDArray[np.int64], targets: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Hold out each user's last target for the test and the one before it for validation.

    `targets` are the positions of the targets, ascending; without them, all events are targets. Events after
    a target belong to its part. Users with fewer than three targets keep all events for training, as holding
    out two would leave nothing to learn from (Kang and McAuley 2018, "Self-attentive sequential
    recommendation", section IV.A).
    """
    bounds = offsets if targets is None else np.searchsorted(targets, offsets)
    is_split = np.diff(bounds) >= MINIMUM_EVENTS_TO_SPLIT
    last = np.column_stack([bounds[1:] - 2, bounds[1:] - 1])
    if targets is not None and len(targets):
        last = targets[last.clip(0)]
    return np.where(is_split[:, None], last, offsets[1:, None])


def by_time(
    times: NDArray[Any], offsets: NDArray[np.int64], validation_from: float, test_from: float
) -> NDArray[np.int64]:
    """Cut all users at the same times: train < `validation_from` <= validation < `test_from` <= test."""
    before = [np.append(0, np.cumsum(times < cut)) for cut in (validation_from, test_from)]
    return np.column_stack([offsets[:-1] + count[offsets[1:]] - count[offsets[:-1]] for count in before])


def time_cuts(times: NDArray[Any], validation_fraction: float, test_fraction: float) -> tuple[Any, Any]:
    """Return the two times that leave at least these fractions of all events to validation and test.

    Events at the same time stay in one part. `times` [E] is reordered in place.
    """
    fractions = (validation_fraction + test_fraction, test_fraction)
    positions = [min(int(len(times) * (1 - fraction)), len(times) - 1) for fraction in fractions]
    times.partition(positions)
    validation_from, test_from = times[positions].tolist()
    return validation_from, test_from


def partition(
    histories: Histories, settings: LastSplit | TimeSplit | FilesSplit | QuerySplit, time: TimeReader
) -> tuple[NDArray[np.int64], manifest.Split]:
    """Split histories into train, validation and test.

    Returns `splits` int64 [U, 2] as in `data.prepared.PreparedData`, and their summary for the manifest.

    Raises ConfigurationError for a split by time of a log without times, and EmptyDataError when no events
    remain for training.
    """

    def targets_of(block: Block) -> NDArray[np.int64]:
        return np.flatnonzero(block.events.are_of(histories.targets))

    offsets = histories.offsets
    noun = "event" if histories.targets is None else "target"
    if isinstance(settings, LastSplit):
        splits = last_out(offsets)
        if histories.targets is not None:
            splits = histories.by_user(lambda block: block.start + last_out(block.offsets, targets_of(block)))
        rule = (
            f"each user's last {noun} is the test and the one before it validation; "
            f"users with fewer than {MINIMUM_EVENTS_TO_SPLIT} {noun}s keep all in train"
        )
    elif isinstance(settings, TimeSplit):
        splits, rule = _by_time(histories, settings, time)
    else:
        assert histories.splits is not None
        splits, rule = histories.splits, "by file" if settings.kind == "files" else "by the text of the query"
        if isinstance(settings, FilesSplit) and settings.validation is None and settings.validation_fraction:
            fraction = settings.validation_fraction
            rule = f"by file; validation is the last {fraction:g} of each user's train events"
            held_out = ((splits[:, 0] - offsets[:-1]) * fraction).astype(np.int64)
            splits = np.column_stack([splits[:, 0] - held_out, splits[:, 1]])
    edges = np.column_stack([offsets[:-1], splits, offsets[1:]])
    targets = lengths = np.diff(edges, axis=1)
    if histories.targets is not None:
        targets = histories.by_user(
            lambda block: np.diff(
                np.searchsorted(targets_of(block), edges[block.users] - block.start), axis=1
            )
        )
    if not targets[:, 0].any():
        raise EmptyDataError(f"the split leaves no {noun}s for training: {rule}; choose another --split")
    summary = manifest.Split(
        kind=settings.kind,
        rule=rule,
        events=dict(zip(PARTS, lengths.sum(axis=0).tolist(), strict=True)),
        targets=dict(zip(PARTS, targets.sum(axis=0).tolist(), strict=True)),
        users=dict(zip(PARTS, (targets > 0).sum(axis=0).tolist(), strict=True)),
    )
    return splits, summary


def _by_time(histories: Histories, settings: TimeSplit, time: TimeReader) -> tuple[NDArray[np.int64], str]:
    if time.kind == "position":
        raise ConfigurationError('split.kind = "time" needs a column of times; name it with --time')
    if settings.validation_from is not None and settings.test_from is not None:
        cuts = (parse_time(settings.validation_from, time), parse_time(settings.test_from, time))
    else:
        times = histories.files.read(0, len(histories), "times")["times"]
        cuts = time_cuts(times, settings.validation_fraction, settings.test_fraction)
    if not cuts[0] <= cuts[1]:
        raise ConfigurationError(
            f"validation_from = {settings.validation_from} has to be before test_from = {settings.test_from}"
        )
    shown = [str(np.datetime64(int(cut), "ms")) if time.kind == "timestamp" else f"{cut:g}" for cut in cuts]
    splits = histories.by_user(lambda block: block.start + by_time(block.events.times, block.offsets, *cuts))
    return splits, f"train is before {shown[0]}, validation before {shown[1]}, test from then on"
