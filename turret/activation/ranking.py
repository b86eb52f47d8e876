"""The metrics of a bundle: its own encoder and index rank its own catalog, as the service does."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.activation.held_out import HeldOut
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.bundle.bundle import Bundle
from turret.tower.retrieval.retriever import Ranking, Retriever
from turret.tower.times import Times
from turret.training.evaluation.metrics import Values, metrics_at

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
                shown = ranker.items[ranking.rows]
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
        self._popular = self._retriever.popular(k)

    def rank(self, users: NDArray[np.int64], ends: NDArray[np.int64]) -> list[Ranking]:
        """The best k items of `users` [B] after their events before the positions `ends` [B]."""
        pairs = list(zip(users.tolist(), ends.tolist(), strict=True))
        events = [self._known_events(user, end) for user, end in pairs]
        histories = [self._rows[self._data.event_items[positions]] for positions in events]
        known = [index for index, rows in enumerate(histories) if len(rows)]
        rankings = [self._popular] * len(pairs)
        chosen = [histories[index] for index in known]
        ranked = self._retriever.recommend(
            chosen,
            [self._features(pairs[index][0]) for index in known],
            self._k,
            chosen if self._bundle.manifest.exclude_seen else [_NOTHING] * len(chosen),
            [self._times(events[index], pairs[index][1]) for index in known],
        )
        for index, ranking in zip(known, ranked, strict=True):
            rankings[index] = ranking
        return rankings

    def _known_events(self, user: int, end: int) -> NDArray[np.int64]:
        positions = np.arange(self._data.offsets[user], end)
        return positions[self._rows[self._data.event_items[positions]] >= 0]

    def _features(self, user: int) -> dict[str, Any]:
        if not self._bundle.user_features:
            return {}
        raw = self._data.user_features.raw(user)
        return {one.name: raw[one.name] for one in self._bundle.user_features if one.name in raw}

    def _times(self, positions: NDArray[np.int64], end: int) -> Times | None:
        """The times of events, with a request at the time of the first target."""
        if not self._bundle.manifest.reads_times or self._data.manifest.time.kind != "timestamp":
            return None
        times = self._data.times
        return Times(np.asarray(times[positions], dtype=np.float64) / 1000.0, float(times[end]) / 1000.0)
