"""The events of prepared data that neither of two versions was trained on."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.moments import milliseconds
from turret.data.prepared import PreparedData
from turret.data.ranges import groups
from turret.tower.format.manifest import Manifest

# With this number of users the interval is narrow; more users only take longer.
MOST_USERS = 20_000
_EVENTS_A_BLOCK = 2**22
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class HeldOut:
    """The targets of `users` [U], rows of prepared data: their events at `starts[u]:ends[u]`, all int64 [U].

    Where the data has kinds, the event at the start is of a target kind, and other kinds are no targets.
    Earlier events of a user are the history. `rule` describes the events. `warning` says that the older
    version may have been trained on some of them.
    """

    users: Positions
    starts: Positions
    ends: Positions
    rule: str
    warning: str | None = None


def held_out(data: PreparedData, new: Manifest, live: Manifest) -> HeldOut:
    """Choose the targets in `data` for a comparison of two versions.

    A version that was trained on `data` has not seen the test part; any other version has seen no event after
    its `data_until`. The targets are the events that neither version has seen. Where the limit of the live
    version leaves no target, it is dropped, with a warning: the comparison is to that version's advantage.

    Raises DataError where dropping a limit would favour the new version, or where there is no event at all.
    """
    are_trained = [manifest.fingerprints.get("data") == data.fingerprint for manifest in (new, live)]
    starts, rules, warning = np.asarray(data.offsets[:-1]), list[str](), None
    if any(are_trained):
        starts, rules = np.asarray(data.splits[:, 1]), ["of the test part"]
    if not are_trained[0]:
        limit = _limit(data, new)
        if limit is None:
            raise DataError(
                f"version {new.version} was not trained on {data.folder}, and without times it is not known "
                "which of its events are new to it; name the data that it was trained on with --data"
            )
        starts = np.maximum(starts, _first_after(data, limit))
        rules.append(f"after {new.data_until}")
    if not _users(data, starts).size:
        raise DataError(
            f"{data.folder} has no event that version {new.version} was not trained on ({' '.join(rules)}); "
            "name the data that it was trained on, with a test part, or newer events with --data"
        )
    if not are_trained[1]:
        limit = _limit(data, live)
        later = starts if limit is None else np.maximum(starts, _first_after(data, limit))
        if limit is not None and _users(data, later).size:
            starts = later
            rules.append(f"after {live.data_until}")
        else:
            reason = f"none is after {live.data_until}" if limit else "its data or this one has no times"
            warning = (
                f"version {live.version} may have been trained on some of these events, to its advantage: "
                f"{reason}"
            )
    users = _users(data, starts)
    if len(users) > MOST_USERS:
        users = np.sort(np.random.default_rng(0).choice(users, MOST_USERS, replace=False))
    ends = np.asarray(data.offsets[users + 1])
    return HeldOut(users, data.first_targets(starts[users], ends), ends, " and ".join(rules), warning)


def _limit(data: PreparedData, manifest: Manifest) -> int | None:
    """The newest time (ms) that a version has seen; None if the version or the data has no times."""
    if manifest.data_until is None or data.manifest.time.kind != "timestamp":
        return None
    return milliseconds(manifest.data_until)


def _first_after(data: PreparedData, limit: int) -> Positions:
    """The position behind each user's last event up to `limit`: int64 [U]."""
    result = np.array(data.offsets[:-1])
    for first, last in pairwise(groups(data.offsets, _EVENTS_A_BLOCK).tolist()):
        start, end = int(data.offsets[first]), int(data.offsets[last])
        owners = np.repeat(np.arange(first, last), np.diff(data.offsets[first : last + 1]))
        positions = np.flatnonzero(data.times[start:end] <= limit)
        # The positions of a user ascend, and the last assignment counts.
        result[owners[positions]] = start + positions + 1
    return result


def _users(data: PreparedData, starts: Positions) -> Positions:
    """The users with a target from `starts` [U] on."""
    return np.flatnonzero(data.first_targets(starts, data.offsets[1:]) < data.offsets[1:])
