"""A metric of a bundle for each user with held-out events, over all items or one slot of them."""

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
# A query has rows of the history, features, times, the bundle's codes of kinds, and rows to leave out.
_Query = tuple[Positions, dict[str, Any], Times | None, Positions, Positions]


def values_of_users(
    bundle: Bundle, data: PreparedData, held: HeldOut, metric: str, slots: Sequence[Slot] = ("all",)
) -> dict[str, Values]:
    """One metric for each user of `held` in each slot: float64 [U] by name, such as "new ndcg@10".

    A target that the bundle doesn't know is a miss. Items of the history are left out as the bundle says, and
    users without a known item get popular items. Events of kinds that its histories don't have are not read.
    The value is NaN for a user without a target in a slot, and for an AUC without a negative.
    """
    bundle_rows = map(bundle.vocabulary.row, data.item_ids.ids(range(len(data.item_ids))))
    rows = np.array([-1 if row is None else row for row in bundle_rows], dtype=np.int64)
    retriever, counted = Retriever(bundle), CountedKinds(bundle.manifest)
    values = {slot_metric(slot, metric): np.full(len(held.users), np.nan) for slot in slots}
    with progress(f"ranking by {bundle.manifest.version}", len(held.users)) as advance:
        for first in range(0, len(held.users), _USERS_A_BLOCK):
            block = slice(first, first + _USERS_A_BLOCK)
            users, starts, ends = (column[block].tolist() for column in (held.users, held.starts, held.ends))
            queries = [
                _query(bundle, data, rows, counted, user, start)
                for user, start in zip(users, starts, strict=True)
            ]
            batch = _QueryBatch.of(retriever, bundle, queries)
            if metric == AUC:
                values[AUC][block] = _auc_of_each(batch, data, rows, starts, ends)
            else:
                events = (data.only_targets(np.arange(*bounds)) for bounds in zip(starts, ends, strict=True))
                targets = [np.unique(data.event_items[positions]).astype(np.int64) for positions in events]
                used = [_used(data, user, start) for user, start in zip(users, starts, strict=True)]
                for slot in slots:
                    slot_values = _metric_of_each(batch, rows, targets, used, metric, slot)
                    values[slot_metric(slot, metric)][block] = slot_values
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
    batch: "_QueryBatch",
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
        targets = [wanted[np.isin(wanted, before) == (slot == "again")] for wanted, before in each]
    known = [used_rows[used_rows >= 0] for used_rows in (rows[before] for before in used)]
    out = [query[-1] for query in batch.queries]
    if slot == "again":
        ranked = [ranking.rows[:k] for ranking in batch.scored(known, out)]
    else:
        ranked = batch.nearest(k, list(map(np.append, out, known)) if slot == "new" else out)
    hits = np.zeros((len(targets), k), dtype=bool)
    for hit, wanted, best in zip(hits, targets, ranked, strict=True):
        hit[: len(best)] = np.isin(best, rows[wanted])
    relevant = np.array([len(wanted) for wanted in targets])
    values, have = np.full(len(targets), np.nan), relevant > 0
    values[have] = metrics_at(hits[have], relevant[have], [k])[metric]
    return values


def _auc_of_each(
    batch: "_QueryBatch", data: PreparedData, rows: Positions, starts: list[int], ends: list[int]
) -> Values:
    """Like `training.evaluation.ranking.auc_of_users`, for the events of B users at `starts:ends`."""
    values, offered = np.full(len(starts), np.nan), data.negatives
    if offered is None:
        return values
    pairs = []
    for start, end in zip(starts, ends, strict=True):
        bounds = offered.offsets[start : end + 1]
        events = np.repeat(data.event_items[start:end], np.diff(bounds))
        pairs.append(np.stack([rows[events], rows[offered.items[bounds[0] : bounds[-1]]]]))
    nothing = [np.empty(0, dtype=np.int64)] * len(pairs)
    for index, (pair, ranking) in enumerate(
        zip(pairs, batch.scored([np.unique(pair[pair >= 0]) for pair in pairs], nothing), strict=True)
    ):
        scores = dict(zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True))
        higher, lower = ([scores.get(row, -np.inf) for row in side] for side in pair.tolist())
        if higher:
            values[index] = np.mean(np.greater(higher, lower) + 0.5 * np.equal(higher, lower))
    return values


def _query(
    bundle: Bundle, data: PreparedData, rows: Positions, counted: CountedKinds, user: int, end: int
) -> _Query:
    """The query for the event at `end`: the user's history before it as the bundle reads it, at its time.

    `rows` [N] has the bundle's row of each item of the data, -1 for an unknown item.
    """
    positions = np.arange(end if data.has_queries else data.offsets[user], end)
    items, when = data.event_items[positions], data.times[positions]
    kinds: list[str] = []
    if data.kinds is not None:
        negatives = data.given_negatives(np.array([user]), np.array([end]))
        items, when = np.append(negatives.items, items), np.append(negatives.times, when)
        order = np.argsort(when, kind="stable")
        items, when = items[order], when[order]
        names = {code: name for name, code in row_codes(data.manifest.kinds).items()}
        kinds = [names[code] for code in np.append(negatives.kinds, data.kinds[positions])[order].tolist()]
    values = data.user_values(user) | data.context_values(user, end) if bundle.user_features else {}
    features = {
        feature.name: values[feature.name] for feature in bundle.user_features if feature.name in values
    }
    has_times = data.manifest.time.kind == "timestamp"
    counts = counted.count(items.tolist(), kinds, when.tolist() if has_times else None, int(data.times[end]))
    bundle_rows = rows[items]
    are_read, are_left_out = counts.are_read & (bundle_rows >= 0), counts.are_left_out & (bundle_rows >= 0)
    times = None
    if bundle.manifest.uses_times and has_times:
        times = Times(when[are_read] / 1_000.0, float(data.times[end]) / 1_000.0)
    return bundle_rows[are_read], features, times, counts.codes[are_read], bundle_rows[are_left_out]


class _QueryBatch(NamedTuple):
    """B queries; `known` are the indices of those that the bundle can encode, to `vectors` and `bonuses`."""

    retriever: Retriever
    queries: list[_Query]
    known: list[int]
    vectors: NDArray[np.float32]
    bonuses: list[Bonus | None]

    @classmethod
    def of(cls, retriever: Retriever, bundle: Bundle, queries: list[_Query]) -> "_QueryBatch":
        known = [
            index for index, query in enumerate(queries) if bundle.encoder.can_encode(query[0], query[1])
        ]
        if not known:
            return cls(retriever, queries, [], np.empty((0, 0), dtype=np.float32), [])
        histories, features, times, kinds, _ = zip(*(queries[index] for index in known), strict=True)
        vectors = retriever.encode(histories, features, times, kinds=kinds)
        return cls(retriever, queries, known, vectors, retriever.bonus_of_each(histories, times, kinds))

    def nearest(self, k: int, excluded: Sequence[Positions]) -> list[Positions]:
        """The best k rows for each query, without the rows `excluded` for it."""
        result = [self.retriever.popular(k).rows] * len(self.queries)
        if self.known:
            out = [excluded[index] for index in self.known]
            rankings = self.retriever.nearest_of_each(self.vectors, [k] * len(out), out, self.bonuses)
            for index, ranking in zip(self.known, rankings, strict=True):
                result[index] = ranking.rows
        return result

    def scored(self, only: Sequence[Positions], excluded: Sequence[Positions]) -> list[Ranking]:
        """The distinct rows `only` of each query, best first, without the rows `excluded` for it."""
        places = np.argsort(self.retriever.popular(len(self.retriever.planner)).rows)
        result = []
        for rows in only:
            order = np.argsort(places[rows])
            result.append(Ranking(rows[order], -places[rows][order].astype(np.float32), Plan("popularity")))
        for index, vector, bonus in zip(self.known, self.vectors, self.bonuses, strict=True):
            count = max(1, len(only[index]))
            result[index] = self.retriever.nearest(vector, count, excluded[index], None, bonus, only[index])
        return result
