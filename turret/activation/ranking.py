"""A metric of a bundle for each user of some held-out events, in all answers or one half of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.activation.held_out import HeldOut, Positions
from turret.data.histories.duplicates import Merging
from turret.data.kinds import row_codes
from turret.data.prepared import PreparedData
from turret.data.progress import progress
from turret.tower.bundle.bundle import Bundle
from turret.tower.counted_kinds import CountedKinds
from turret.tower.index.planner import Plan
from turret.tower.repeats import Bonus, Events, Slot
from turret.tower.retrieval import Ranking, Retriever
from turret.tower.slots import slot_metric
from turret.tower.times import Times
from turret.training.config.metric import AUC
from turret.training.evaluation.metrics import Values, metrics_at

_USERS_A_BLOCK = 256
# Rows of the history, features, times, the bundle's codes of kinds, and the rows that answers leave out.
_Query = tuple[Positions, dict[str, Any], Times | None, Positions, Positions]


def values_of_users(
    bundle: Bundle, data: PreparedData, held: HeldOut, metric: str, slots: Sequence[Slot] = ("all",)
) -> dict[str, Values]:
    """One metric for each user of `held` in each slot: float64 [U] by name, such as "new ndcg@10".

    A target that the bundle doesn't know is a miss. Items of the history are left out as the bundle says, and
    users without a known item get popular items. Events of a kind that its histories don't have are not read.
    NaN for users without a target in a slot, or for an AUC without a negative.
    """
    found = map(bundle.vocabulary.row, data.item_ids.ids(range(len(data.item_ids))))
    rows = np.array([-1 if row is None else row for row in found], dtype=np.int64)
    retriever, counted = Retriever(bundle), CountedKinds(bundle.manifest)
    values = {slot_metric(slot, metric): np.full(len(held.users), np.nan) for slot in slots}
    with progress(f"ranking by {bundle.manifest.version}", len(held.users)) as advance:
        for first in range(0, len(held.users), _USERS_A_BLOCK):
            block = slice(first, first + _USERS_A_BLOCK)
            users, starts, ends = (one[block].tolist() for one in (held.users, held.starts, held.ends))
            queries = [
                _query(bundle, data, rows, counted, user, start)
                for user, start in zip(users, starts, strict=True)
            ]
            asked = _Asked.of(retriever, bundle, queries)
            if metric == AUC:
                values[AUC][block] = _auc_of_each(asked, data, rows, starts, ends)
            else:
                events = (data.only_targets(np.arange(*bounds)) for bounds in zip(starts, ends, strict=True))
                targets = [np.unique(data.event_items[own]).astype(np.int64) for own in events]
                used = [_used(data, user, start) for user, start in zip(users, starts, strict=True)]
                for slot in slots:
                    own = _metric_of_each(asked, rows, targets, used, metric, slot)
                    values[slot_metric(slot, metric)][block] = own
            advance(len(users))
    return values


def _used(data: PreparedData, user: int, end: int) -> Positions:
    """The rows of `data` that the user had used before the event at `end`."""
    positions = np.arange(end if data.has_queries else data.offsets[user], end)
    times, kinds = None, None
    if data.manifest.time.kind == "timestamp":
        times = Times(data.times[positions] / 1_000.0, float(data.times[end]) / 1_000.0)
    if data.kinds is not None:
        kinds = data.kinds[positions].astype(np.int64)
    merging = Merging.of_data(data.manifest)
    return np.unique(Events.of_one(data.event_items[positions], times, kinds, merging).rows)


def _metric_of_each(
    asked: "_Asked",
    rows: Positions,
    targets: list[Positions],
    used: list[Positions],
    metric: str,
    slot: Slot,
) -> Values:
    """The metric of B users by their targets and used items, rows of data, in a slot: float64 [B]."""
    k = int(metric.partition("@")[2])
    if slot != "all":
        each = zip(targets, used, strict=True)
        targets = [own[np.isin(own, before) == (slot == "again")] for own, before in each]
    known = [own[own >= 0] for own in (rows[before] for before in used)]
    out = [query[-1] for query in asked.queries]
    if slot == "again":
        ranked = [one.rows[:k] for one in asked.scored(known, out)]
    else:
        ranked = asked.nearest(k, list(map(np.append, out, known)) if slot == "new" else out)
    hits = np.zeros((len(targets), k), dtype=bool)
    for hit, own, best in zip(hits, targets, ranked, strict=True):
        hit[: len(best)] = np.isin(best, rows[own])
    relevant = np.array([len(own) for own in targets])
    values, have = np.full(len(targets), np.nan), relevant > 0
    values[have] = metrics_at(hits[have], relevant[have], [k])[metric]
    return values


def _auc_of_each(
    asked: "_Asked", data: PreparedData, rows: Positions, starts: list[int], ends: list[int]
) -> Values:
    """As `training.evaluation.ranking.auc_of_users`, of the events of B users at `starts:ends`."""
    values, offered = np.full(len(starts), np.nan), data.negatives
    if offered is None:
        return values
    pairs = []
    for start, end in zip(starts, ends, strict=True):
        bounds = offered.offsets[start : end + 1]
        events = np.repeat(data.event_items[start:end], np.diff(bounds))
        pairs.append(np.stack([rows[events], rows[offered.items[bounds[0] : bounds[-1]]]]))
    nothing = [np.empty(0, dtype=np.int64)] * len(pairs)
    for index, (own, found) in enumerate(
        zip(pairs, asked.scored([np.unique(own[own >= 0]) for own in pairs], nothing), strict=True)
    ):
        scores = dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))
        higher, lower = ([scores.get(row, -np.inf) for row in side] for side in own.tolist())
        if higher:
            values[index] = np.mean(np.greater(higher, lower) + 0.5 * np.equal(higher, lower))
    return values


def _query(
    bundle: Bundle, data: PreparedData, rows: Positions, counted: CountedKinds, user: int, end: int
) -> _Query:
    """The history of `user` before the event at `end` as the bundle has it, asked at the event's time.

    `rows` [N] has the bundle's row of each item of the data, -1 for none.
    """
    positions = np.arange(end if data.has_queries else data.offsets[user], end)
    items, when = data.event_items[positions], data.times[positions]
    kinds: list[str] = []
    if data.kinds is not None:
        given = data.given_negatives(np.array([user]), np.array([end]))
        items, when = np.append(given.items, items), np.append(given.times, when)
        order = np.argsort(when, kind="stable")
        items, when = items[order], when[order]
        names = {code: name for name, code in row_codes(data.manifest.kinds).items()}
        kinds = [names[code] for code in np.append(given.kinds, data.kinds[positions])[order].tolist()]
    values = data.user_values(user) if bundle.user_features else {}
    features = {one.name: values[one.name] for one in bundle.user_features if one.name in values}
    has_times = data.manifest.time.kind == "timestamp"
    found = counted.count(items.tolist(), kinds, when.tolist() if has_times else None, int(data.times[end]))
    own = rows[items]
    are_read, are_left_out = found.are_read & (own >= 0), found.are_left_out & (own >= 0)
    times = None
    if bundle.manifest.uses_times and has_times:
        times = Times(when[are_read] / 1_000.0, float(data.times[end]) / 1_000.0)
    return own[are_read], features, times, found.codes[are_read], own[are_left_out]


class _Asked(NamedTuple):
    """B queries, and the vectors and gains of those, by their places, that say anything to the bundle."""

    retriever: Retriever
    queries: list[_Query]
    known: list[int]
    vectors: NDArray[np.float32]
    bonuses: list[Bonus | None]

    @classmethod
    def of(cls, retriever: Retriever, bundle: Bundle, queries: list[_Query]) -> "_Asked":
        known = [index for index, one in enumerate(queries) if bundle.encoder.can_encode(one[0], one[1])]
        if not known:
            return cls(retriever, queries, [], np.empty((0, 0), dtype=np.float32), [])
        histories, features, times, kinds, _ = zip(*(queries[index] for index in known), strict=True)
        vectors = retriever.encode(histories, features, times, kinds=kinds)
        return cls(retriever, queries, known, vectors, retriever.bonus_of_each(histories, times, kinds))

    def nearest(self, k: int, excluded: Sequence[Positions]) -> list[Positions]:
        """The best k rows for each query, but for those `excluded` for it."""
        result = [self.retriever.popular(k).rows] * len(self.queries)
        if self.known:
            out = [excluded[index] for index in self.known]
            found = self.retriever.nearest_of_each(self.vectors, [k] * len(out), out, self.bonuses)
            for index, ranking in zip(self.known, found, strict=True):
                result[index] = ranking.rows
        return result

    def scored(self, only: Sequence[Positions], excluded: Sequence[Positions]) -> list[Ranking]:
        """The distinct rows `only` of each query, best first, but for those `excluded` for it."""
        places = np.argsort(self.retriever.popular(len(self.retriever.planner)).rows)
        result = []
        for own in only:
            order = np.argsort(places[own])
            result.append(Ranking(own[order], -places[own][order].astype(np.float32), Plan("popularity")))
        for index, vector, bonus in zip(self.known, self.vectors, self.bonuses, strict=True):
            count = max(1, len(only[index]))
            result[index] = self.retriever.nearest(vector, count, excluded[index], None, bonus, only[index])
        return result
