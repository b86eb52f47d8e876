"""The events that two versions are compared on, and their rankings of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.errors import DataError
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.data.ranges import groups
from turret.tower.bundle.bundle import Bundle
from turret.tower.format.manifest import Manifest
from turret.tower.retrieval import Retriever
from turret.tower.times import Times
from turret.training.evaluation.metrics import Values, metrics_at

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
    are_trained = [manifest.fingerprints.get("data") == data.fingerprint for manifest in (new, live)]
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
                + (
                    "its data or this one has no times"
                    if limit is None
                    else f"none is after {live.data_until}"
                )
            )
    users = _sample(_users(data, starts))
    return HeldOut(users, starts[users], np.asarray(data.offsets[users + 1]), " and ".join(rules), warning)


def _limit(data: PreparedData, manifest: Manifest) -> float | None:
    """The newest time that a version has seen, in milliseconds; None where it or the data has no times."""
    if manifest.data_until is None or data.manifest.time.kind != "timestamp":
        return None
    return datetime.fromisoformat(manifest.data_until).timestamp() * 1000.0


def _unseen(data: PreparedData, manifest: Manifest) -> Positions:
    limit = _limit(data, manifest)
    if limit is None:
        raise DataError(
            f"version {manifest.version} was not trained on {data.folder}, and without times it is not known "
            "which of its events are new to it; name the data that it was trained on with --data"
        )
    return _first_after(data, limit)


def _first_after(data: PreparedData, limit: float) -> Positions:
    """The position behind each user's last event up to `limit`: int64 [U]."""
    result = np.array(data.offsets[:-1])
    bounds: Sequence[int] = groups(data.offsets, _EVENTS_A_BLOCK).tolist()
    for first, last in pairwise(bounds):
        start, end = int(data.offsets[first]), int(data.offsets[last])
        owners = np.repeat(np.arange(first, last), np.diff(data.offsets[first : last + 1]))
        positions = np.flatnonzero(data.times[start:end] <= limit)
        # The positions of a user ascend, and the last assignment counts.
        result[owners[positions]] = start + positions + 1
    return result


def _users(data: PreparedData, starts: Positions) -> Positions:
    return np.flatnonzero(starts < data.offsets[1:])


def _sample(users: Positions) -> Positions:
    if len(users) <= MOST_USERS:
        return users
    return np.sort(np.random.default_rng(0).choice(users, MOST_USERS, replace=False))


_USERS_A_BLOCK = 256
_NOTHING = np.empty(0, dtype=np.int64)


def metric_of_users(bundle: Bundle, data: PreparedData, held_out: HeldOut, metric: str, k: int) -> Values:
    """The values of a metric at `k` for each user of `held_out`: float64 [U].

    A target that the bundle doesn't know is a miss. Items of the history are left out if the bundle's
    `exclude_seen` says so, and users without a known item get popular items.
    """
    ranker = _Ranker(bundle, data, k)
    users = len(held_out.users)
    hits = np.zeros((users, k), dtype=bool)
    relevant = np.empty(users, dtype=np.int64)
    with progress(f"ranking by {bundle.manifest.version}", users) as advance:
        for first in range(0, users, _USERS_A_BLOCK):
            indices = np.arange(first, min(first + _USERS_A_BLOCK, users))
            starts = held_out.starts[indices]
            rankings = ranker.rank(held_out.users[indices], starts)
            for index, start, ranking in zip(indices, starts, rankings, strict=True):
                targets = np.unique(data.event_items[start : held_out.ends[index]])
                shown = ranker.items[ranking]
                hits[index, : len(shown)] = np.isin(shown, targets)
                relevant[index] = len(targets)
            advance(len(indices))
    return metrics_at(hits, relevant, [k])[metric]


class _Ranker:
    """Ranks the catalog of a bundle for users of prepared data.

    `items` [N] are the bundle's items as rows of the data, -1 for those that are not in it.
    """

    def __init__(self, bundle: Bundle, data: PreparedData, k: int) -> None:
        self._bundle, self._data, self._k = bundle, data, k
        self._retriever = Retriever(bundle)
        ids = data.item_ids.ids(range(len(data.item_ids)))
        rows = (bundle.vocabulary.row(item) for item in ids)
        self._rows = np.array([-1 if row is None else row for row in rows], dtype=np.int64)
        self.items = np.full(len(bundle.vocabulary), -1, dtype=np.int64)
        known = np.flatnonzero(self._rows >= 0)
        self.items[self._rows[known]] = known
        self._popular = self._retriever.popular(k).rows

    def rank(self, users: NDArray[np.int64], ends: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The rows of the best k items of `users` [B] after their events before the positions `ends` [B]."""
        pairs = list(zip(users.tolist(), ends.tolist(), strict=True))
        events = [self._known_events(user, end) for user, end in pairs]
        histories = [self._rows[self._data.event_items[positions]] for positions in events]
        features = [self._features(user) for user, _ in pairs]
        can_encode = self._bundle.encoder.can_encode
        known = [index for index, rows in enumerate(histories) if can_encode(rows, features[index])]
        result = [self._popular] * len(pairs)
        if not known:
            return result
        vectors = self._bundle.encoder.encode(
            [histories[index] for index in known],
            [features[index] for index in known],
            [self._times(events[index], pairs[index][1]) for index in known],
        )
        excludes = self._bundle.manifest.exclude_seen
        excluded = [histories[index] if excludes else _NOTHING for index in known]
        rankings = self._retriever.nearest_of_each(vectors, [self._k] * len(known), excluded)
        for index, ranking in zip(known, rankings, strict=True):
            result[index] = ranking.rows
        return result

    def _known_events(self, user: int, end: int) -> NDArray[np.int64]:
        if self._data.has_queries:
            return _NOTHING
        positions = np.arange(self._data.offsets[user], end)
        return positions[self._rows[self._data.event_items[positions]] >= 0]

    def _features(self, user: int) -> dict[str, Any]:
        if not self._bundle.user_features:
            return {}
        raw = self._data.user_values(user)
        return {one.name: raw[one.name] for one in self._bundle.user_features if one.name in raw}

    def _times(self, positions: NDArray[np.int64], end: int) -> Times | None:
        """The times of events, with a request at the time of the first target."""
        if not self._bundle.manifest.reads_times or self._data.manifest.time.kind != "timestamp":
            return None
        times = self._data.times
        return Times(np.asarray(times[positions], dtype=np.float64) / 1000.0, float(times[end]) / 1000.0)
