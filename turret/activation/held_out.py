"""The events that a comparison of two versions is measured on: neither was trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.data.ranges import groups
from turret.tower.format.manifest import Manifest

Positions = NDArray[np.int64]

# The interval of so many users is narrow; more of them only take longer.
MOST_USERS = 20_000
_EVENTS_A_BLOCK = 2**22


@dataclass(frozen=True)
class HeldOut:
    """The targets of `users` [U], rows of prepared data: their events at `starts[u]:ends[u]`, all int64 [U].

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

    A version that was trained on `data` has not seen the test part, any other one no event after its
    `data_until`. The targets are those of both. Where that leaves none because of the live version, its limit
    is dropped, with a warning: the comparison is to its advantage.

    Raises DataError where it would be to the advantage of the new version, or where there is no event at all.
    """
    are_trained = [_is_trained_on(data, manifest) for manifest in (new, live)]
    starts = np.asarray(data.splits[:, 1] if any(are_trained) else data.offsets[:-1])
    rules = ["of the test part"] if any(are_trained) else []
    if not are_trained[0]:
        starts = np.maximum(starts, _unseen(data, new))
        rules.append(f"after {new.data_until}")
    if not _users(data, starts).size:
        raise DataError(
            f"{data.folder} has no event that version {new.version} was not trained on ({' '.join(rules)}); "
            "name the data that it was trained on, with a test part, or newer events with --data"
        )
    warning = None
    if not are_trained[1]:
        limit = _limit(data, live)
        later = starts if limit is None else np.maximum(starts, _first_after(data, limit))
        if limit is not None and _users(data, later).size:
            starts = later
            rules.append(f"after {live.data_until}")
        else:
            warning = (
                f"version {live.version} may have been trained on some of these events, to its advantage: "
                + ("its data or this one has no times" if limit is None else f"none is after {limit.text}")
            )
    users = _sample(_users(data, starts))
    return HeldOut(users, starts[users], np.asarray(data.offsets[users + 1]), " and ".join(rules), warning)


@dataclass(frozen=True)
class _Limit:
    text: str
    milliseconds: float


def _is_trained_on(data: PreparedData, manifest: Manifest) -> bool:
    return manifest.fingerprints.get("data") == data.fingerprint


def _limit(data: PreparedData, manifest: Manifest) -> _Limit | None:
    """The newest time that a version has seen; None where it or the data has no times."""
    if manifest.data_until is None or data.manifest.time.kind != "timestamp":
        return None
    return _Limit(manifest.data_until, datetime.fromisoformat(manifest.data_until).timestamp() * 1000.0)


def _unseen(data: PreparedData, manifest: Manifest) -> Positions:
    limit = _limit(data, manifest)
    if limit is None:
        raise DataError(
            f"version {manifest.version} was not trained on {data.folder}, and without times it is not known "
            "which of its events are new to it; name the data that it was trained on with --data"
        )
    return _first_after(data, limit)


def _first_after(data: PreparedData, limit: _Limit) -> Positions:
    """The position behind each user's last event up to `limit`: int64 [U]."""
    result = np.array(data.offsets[:-1])
    bounds: Sequence[int] = groups(data.offsets, _EVENTS_A_BLOCK).tolist()
    for first, last in pairwise(bounds):
        start, end = int(data.offsets[first]), int(data.offsets[last])
        owners = np.repeat(np.arange(first, last), np.diff(data.offsets[first : last + 1]))
        positions = np.flatnonzero(data.times[start:end] <= limit.milliseconds)
        # The positions of a user ascend, and the last assignment counts.
        result[owners[positions]] = start + positions + 1
    return result


def _users(data: PreparedData, starts: Positions) -> Positions:
    return np.flatnonzero(starts < data.offsets[1:])


def _sample(users: Positions) -> Positions:
    if len(users) <= MOST_USERS:
        return users
    return np.sort(np.random.default_rng(0).choice(users, MOST_USERS, replace=False))
