"""Evaluation by full ranking: towers and popularity, for all users and for slices of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from turret.data.kinds import Seen, read_kinds, target_codes
from turret.data.prepared import HistoryEnd, PreparedData
from turret.data.progress import progress
from turret.data.ranges import distinct, ranges
from turret.tower.repeats import Slot
from turret.tower.slots import SLOTS, slot_metric
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import EvaluationConfig, TrainingConfig
from turret.training.config.metric import AUC
from turret.training.errors import TrainingError
from turret.training.evaluation.metrics import (
    USED,
    Values,
    difference_interval,
    mean_interval,
    metrics_at,
    slices,
)
from turret.training.evaluation.per_user import PerUser
from turret.training.evaluation.ranking import (
    USERS_A_BLOCK,
    CatalogScores,
    ScoresOf,
    auc_of_users,
    popularity_scores,
    rank,
    tower_scores,
    users_with_negatives,
)
from turret.training.evaluation.seen import (
    Pairs,
    history_bounds,
    left_out_pairs,
    used_pairs,
)
from turret.training.randomness import stream
from turret.training.used_items import consuming_kinds, leaves_out_all

EvaluatedPart = Literal["validation", "test"]
TOWERS, SLICED = "towers", ("towers", "popularity", "recent_popularity", "last_used", "most_used")

Rankers = Mapping[str, Callable[[], ScoresOf]]
"""Functions that make scores, by name, with the towers; scores are dropped before the next ones are made."""


@dataclass(frozen=True)
class Relevant:
    """The distinct target items of U users, packed: user u has `rows[offsets[u]:offsets[u + 1]]`."""

    users: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of relevant items of each user: int64 [U], at least 1."""
        return np.diff(self.offsets)

    def take(self, indices: NDArray[np.int64]) -> "Relevant":
        """The users at `indices`, in that order."""
        counts = self.counts[indices]
        rows = self.rows[ranges(self.offsets[indices], counts)]
        return Relevant(self.users[indices], rows, np.concatenate([[0], np.cumsum(counts)]))


def relevant_items(data: PreparedData, part: EvaluatedPart) -> Relevant:
    """The users with a target in `part`, and their distinct targets: items of events of target kinds.

    Raises:
        TrainingError: the part is empty.
    """
    starts, ends = (np.asarray(bound) for bound in data.bounds(part))
    users = np.flatnonzero(data.first_targets(starts, ends) < ends)
    if not len(users):
        raise TrainingError(
            f"{data.folder}: the {part} part is empty, so evaluation has no targets; "
            "prepare the data with another split."
        )
    return _items_of(data, part, users, data.are_targets)


def _items_of(
    data: PreparedData,
    part: EvaluatedPart,
    users: NDArray[np.int64],
    chosen: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
) -> Relevant:
    """The distinct items of those events of `users` [U] in `part` whose positions are `chosen`."""
    starts, ends = (np.asarray(bound)[users] for bound in data.bounds(part))
    positions = ranges(starts, ends - starts)
    are_chosen = chosen(positions)
    owners = np.repeat(np.arange(len(users)), ends - starts)[are_chosen]
    keys = distinct(owners * len(data.item_ids) + data.event_items[positions[are_chosen]])
    counts = np.bincount(keys // len(data.item_ids), minlength=len(users))
    return Relevant(users, keys % len(data.item_ids), np.concatenate([[0], np.cumsum(counts)]))


def relevant_by_kind(data: PreparedData, part: EvaluatedPart, relevant: Relevant) -> dict[str, Relevant]:
    """The relevant items of each target kind, such as "kind purchase", of the users of `relevant`.

    Some of the users have no item of a kind; kinds of which no user has one are left out. The result is empty
    for data with fewer than two target kinds.
    """
    codes, names, kinds = target_codes(data.manifest.kinds), read_kinds(data.manifest.kinds), data.kinds
    if kinds is None or len(codes) < 2:
        return {}

    def items_of(code: int) -> Relevant:
        return _items_of(data, part, relevant.users, lambda positions: kinds[positions] == code)

    each = {f"kind {names[code]}": items_of(code) for code in codes}
    return {kind: items for kind, items in each.items() if items.counts.any()}


def validated_items(data: PreparedData, settings: TrainingConfig) -> Relevant:
    """At most `training.validation_users` users with targets in the validation part, in order of their rows.

    Raises:
        TrainingError: the part is empty, or has no negatives for an AUC.
    """
    relevant, most = relevant_items(data, "validation"), settings.validation_users
    if settings.metric == AUC:
        indices = np.flatnonzero(np.isin(relevant.users, users_with_negatives(data, "validation")))
        if not len(indices):
            raise TrainingError(
                f"training.metric = {AUC!r} compares events with their negatives, and no validation event of "
                f"{data.folder} has one; set training.metric = 'ndcg@10', or prepare the data with --label "
                "or --negatives."
            )
        relevant = relevant.take(indices)
    if len(relevant.users) <= most:
        return relevant
    random = stream(settings.seed, "validation users", 0)
    return relevant.take(np.sort(random.choice(len(relevant.users), most, replace=False)))


def hits_of(ranked: NDArray[np.int64], relevant: Relevant, first: int, item_count: int) -> NDArray[np.bool_]:
    """Which ranked rows [U, K] are relevant to the users `relevant.users[first:first + U]`: bool [U, K]."""
    last = first + len(ranked)
    bounds = relevant.offsets[first : last + 1]
    rows = relevant.rows[bounds[0] : bounds[-1]]
    keys = np.repeat(np.arange(len(ranked)), np.diff(bounds)) * item_count + rows
    ranked_keys = np.arange(len(ranked))[:, None] * item_count + ranked
    return np.isin(ranked_keys, keys) & (ranked >= 0)


def first_targets(data: PreparedData, part: EvaluatedPart, users: NDArray[np.int64]) -> Relevant:
    """The first target of each of `users` [U], who have one in `part`."""
    starts, ends = (np.asarray(bound)[users] for bound in data.bounds(part))
    rows = data.event_items[data.first_targets(starts, ends)].astype(np.int64)
    return Relevant(users, rows, np.arange(len(users) + 1))


def used_before(data: PreparedData, relevant: Relevant, until: HistoryEnd) -> NDArray[np.bool_]:
    """Which relevant items are in their user's history: bool [P]."""
    return _among(data, relevant, lambda users: used_pairs(data, users, until))


def slots_of(data: PreparedData, config: EvaluationConfig) -> tuple[Slot, ...]:
    """The halves of an answer that are measured apart: none unless used items are ranked beside others."""
    if data.has_queries or config.candidates == "labelled" or leaves_out_all(data, config.exclude_seen):
        return ()
    return SLOTS


def in_slot(data: PreparedData, relevant: Relevant, until: HistoryEnd, slot: Slot) -> Relevant:
    """The relevant items of a slot: used items for `again`, the others for `new`; some users have none."""
    if slot == "all":
        return relevant
    owners = np.repeat(np.arange(len(relevant.users)), relevant.counts)
    are_chosen = used_before(data, relevant, until) == (slot == "again")
    counts = np.bincount(owners[are_chosen], minlength=len(relevant.users))
    return Relevant(relevant.users, relevant.rows[are_chosen], np.concatenate([[0], np.cumsum(counts)]))


Sets = Sequence[tuple[Slot, Relevant]]
"""Slots with their targets, for the same users: the first of all items, in others some users have none."""


def slot_sets(data: PreparedData, relevant: Relevant, until: HistoryEnd, config: EvaluationConfig) -> Sets:
    """All relevant items, and those of each slot that is measured apart and is not empty."""
    slots: tuple[Slot, ...] = ("all", *slots_of(data, config))
    sets = [(slot, in_slot(data, relevant, until, slot)) for slot in slots]
    return [(slot, items) for slot, items in sets if slot == "all" or len(items.rows)]


def masked(data: PreparedData, relevant: Relevant, until: HistoryEnd, seen: Seen) -> NDArray[np.bool_]:
    """Which relevant items are not ranked, so that they can't be hit: bool [P]."""
    return _among(data, relevant, lambda users: left_out_pairs(data, users, until, seen))


def _among(
    data: PreparedData, relevant: Relevant, pairs_of: Callable[[NDArray[np.int64]], Pairs]
) -> NDArray[np.bool_]:
    """Which relevant items are among the pairs of their user: bool [P]."""
    blocks, item_count = [], len(data.item_ids)
    for first in range(0, len(relevant.users), USERS_A_BLOCK):
        users = relevant.users[first : first + USERS_A_BLOCK]
        owners, used = pairs_of(users)
        bounds = relevant.offsets[first : first + len(users) + 1]
        indices = np.repeat(np.arange(len(users)), np.diff(bounds))
        blocks.append(
            np.isin(indices * item_count + relevant.rows[bounds[0] : bounds[-1]], owners * item_count + used)
        )
    return np.concatenate(blocks)


def measure(
    ranked: Iterable[Mapping[Slot, NDArray[np.int64]]],
    sets: Sets,
    ks: Sequence[int],
    item_count: int,
    label: str,
) -> tuple[list[dict[str, Values]], dict[str, float]]:
    """Measure rankings of max(ks) items, blocks [b, K] of rows with -1 for none, by slot.

    Returns:
        The metrics of each of `sets` by name, [U] each, NaN for users without relevant items; and coverage@k,
        the share of the catalog in the first k of any user.
    """
    users = len(sets[0][1].users)
    hits: list[list[NDArray[np.bool_]]] = [[] for _ in sets]
    shown = {k: np.zeros(item_count, dtype=bool) for k in ks}
    done = 0
    with progress(label, users) as advance:
        for block in ranked:
            for (slot, relevant), slot_hits in zip(sets, hits, strict=True):
                slot_hits.append(hits_of(block[slot], relevant, done, item_count))
            count = len(next(iter(block.values())))
            done += count
            for k in ks if "all" in block else ():
                top = block["all"][:, :k]
                shown[k][top[top >= 0]] = True
            advance(count)
    metrics = []
    for (_, relevant), slot_hits in zip(sets, hits, strict=True):
        have = relevant.counts > 0
        values = metrics_at(np.concatenate(slot_hits)[have], relevant.counts[have], ks)
        spread = {name: np.full(users, np.nan) for name in values}
        for name, value in values.items():
            spread[name][have] = value
        metrics.append(spread)
    return metrics, {f"coverage@{k}": float(shown[k].mean()) for k in ks}


def metric_of(
    scores_of: ScoresOf,
    data: PreparedData,
    relevant: Relevant,
    metric: str,
    config: EvaluationConfig,
    among: Slot = "all",
) -> float:
    """The mean of one metric of any ranker over the users of `relevant` in the validation part.

    Items are ranked `among` all, the user's used ones (`again`), or the others (`new`).
    """
    (values,) = values_of(scores_of, data, [(among, relevant)], metric, config).values()
    return float(values.mean())


def values_of(
    scores_of: ScoresOf, data: PreparedData, sets: Sets, metric: str, config: EvaluationConfig
) -> dict[str, Values]:
    """One metric of any ranker in the validation part, for each user and in each of the slots of `sets`.

    Returns float64 [U] by name, such as "ndcg@10" and "new ndcg@10"; NaN for users without targets in a slot.
    """
    users = sets[0][1].users
    if metric == AUC:
        return {AUC: auc_of_users(scores_of, data, "validation", users)}
    k, is_labelled = int(metric.partition("@")[2]), config.candidates == "labelled"
    slots = [slot for slot, _ in sets]
    blocks = rank(scores_of, data, users, "validation", k, config.exclude_seen, is_labelled, slots)
    values, _ = measure(blocks, sets, [k], len(data.item_ids), "validating")
    return {slot_metric(slot, metric): by_name[metric] for slot, by_name in zip(slots, values, strict=True)}


def means_of(values: Mapping[str, Values]) -> dict[str, float]:
    """The mean of each metric over the users that have it."""
    return {name: float(np.nanmean(of_users)) for name, of_users in values.items()}


def evaluate(
    model: TwoTowers,
    data: PreparedData,
    part: EvaluatedPart,
    config: EvaluationConfig,
    scores: CatalogScores | None = None,
) -> dict[str, Any]:
    """The report of `evaluate_rankers` for the towers, ranked by `scores`, and for popularity."""
    popularity = data.item_counts("train")
    rankers: Rankers = {
        TOWERS: lambda: tower_scores(model, data, part, popularity, scores),
        "popularity": lambda: popularity_scores(popularity),
    }
    return evaluate_rankers(rankers, data, part, config)[0]


def evaluate_rankers(
    rankers: Rankers, data: PreparedData, part: EvaluatedPart, config: EvaluationConfig
) -> tuple[dict[str, Any], PerUser]:
    """Rank the whole catalog for every user with a target in `part`, by one ranker after the other.

    Returns:
        A JSON-ready report: for each ranker `{mean, low, high}` per metric (95 % intervals over
        users) and coverage; `differences` with the same for towers minus each other ranker, paired by user;
        and `slices` with the metrics of the rankers of `SLICED` for groups of users, and for the targets of
        each kind if there are several kinds. If events of the part have negatives, `auc` is a metric too,
        over the users of these events. If used items are ranked, each metric is also measured for the halves
        of an answer (`slots`): `new ndcg@10` is for targets that the user had not used, ranked among such
        items. The second result has the values of each user.
    """
    relevant = relevant_items(data, part)
    groups, by_kind = user_groups(data, part, relevant), relevant_by_kind(data, part, relevant)
    sizes = {name: int(members.sum()) for name, members in groups.items()}
    sizes |= {name: int((items.counts > 0).sum()) for name, items in by_kind.items()}
    _, *slots = slot_sets(data, relevant, part, config)
    report: dict[str, Any] = {
        **_description(data, part, relevant, config),
        "slots": {
            slot: {"users": int((items.counts > 0).sum()), "share": len(items.rows) / len(relevant.rows)}
            for slot, items in slots
        },
        "slices": {name: {"users": size} for name, size in sizes.items()},
    }
    all_values: dict[str, dict[str, Values]] = {}
    offered, count = users_with_negatives(data, part), len(data.item_ids)
    is_labelled, most = config.candidates == "labelled", max(config.k)
    sets: Sets = [*(("all", items) for items in (relevant, *by_kind.values())), *slots]
    ranked_slots: list[Slot] = ["all", *(slot for slot, _ in slots)]
    for name, make_scores in rankers.items():
        with progress(f"preparing {name}"):
            scores_of = make_scores()
        ranked = rank(
            scores_of, data, relevant.users, part, most, config.exclude_seen, is_labelled, ranked_slots
        )
        measured, coverage = measure(ranked, sets, config.k, count, f"ranking by {name}")
        values, of_kinds = measured[0], measured[1 : 1 + len(by_kind)]
        for (slot, _), of_slot in zip(slots, measured[1 + len(by_kind) :], strict=True):
            values |= {slot_metric(slot, metric): value for metric, value in of_slot.items()}
        if len(offered):  # users without negatives have NaN
            values[AUC] = np.full(len(relevant.users), np.nan)
            indices = np.searchsorted(relevant.users, offered)
            values[AUC][indices] = auc_of_users(scores_of, data, part, offered)
        all_values[name] = values
        report[name] = {**summarise(values), **coverage}
        if name in SLICED:
            parts = {
                group: {metric: value[members] for metric, value in values.items() if " " not in metric}
                for group, members in groups.items()
            }
            for group, of_group in {**parts, **dict(zip(by_kind, of_kinds, strict=True))}.items():
                report["slices"][group][name] = summarise(of_group)
        del scores_of, ranked  # before the next scores are made
    report["differences"] = differences(all_values)
    used = groups.get(USED, np.zeros(len(relevant.users), dtype=bool))
    return report, PerUser(data.users.ids(relevant.users), used, all_values)


def _description(
    data: PreparedData, part: EvaluatedPart, relevant: Relevant, config: EvaluationConfig
) -> dict[str, Any]:
    """The size and the rules of the evaluation; a cold item has no training event and is new to its user."""
    used = used_before(data, relevant, part)
    starts, ends = history_bounds(data, relevant.users, part)
    offered = len(users_with_negatives(data, part))
    return {
        "part": part,
        **({"queries": True} if data.has_queries else {}),
        **({"baskets": True} if data.holds_baskets else {}),
        "users": len(relevant.users),
        **({"users_with_negatives": offered} if offered else {}),
        "users_without_history": int((ends == starts).sum()),
        "items": len(data.item_ids),
        "relevant_items": len(relevant.rows),
        "relevant_used_before": int(used.sum()),
        "relevant_cold": int((~used & (data.item_counts("train")[relevant.rows] == 0)).sum()),
        "exclude_seen": leaves_out_all(data, config.exclude_seen),
        "relevant_masked": int(masked(data, relevant, part, config.exclude_seen).sum()),
        **({} if data.kinds is None else {"consuming_kinds": consuming_kinds(data, config.exclude_seen)}),
        **({"candidates": "labelled"} if config.candidates == "labelled" else {}),
        "ties": "ascending item row",
    }


def user_groups(data: PreparedData, part: EvaluatedPart, relevant: Relevant) -> dict[str, NDArray[np.bool_]]:
    """The `slices` of the users of `relevant`: bool [U] by name."""
    starts, ends = history_bounds(data, relevant.users, part)
    first = first_targets(data, part, relevant.users)
    return slices(ends - starts, data.item_counts("train"), first.rows, used_before(data, first, part))


def differences(values: Mapping[str, dict[str, Values]]) -> dict[str, dict[str, dict[str, float]]]:
    """Summarise the towers minus each other ranker, paired by user, from the values [U] of both."""
    return {
        name: summarise(
            {key: values[TOWERS][key] - value for key, value in metrics.items()}, difference_interval
        )
        for name, metrics in values.items()
        if name != TOWERS
    }


def summarise(
    values: dict[str, Values], interval: Callable[[Values], tuple[float, float]] = mean_interval
) -> dict[str, dict[str, float]]:
    """The `mean` of each metric over users, with the `low` and `high` end of its 95 % interval.

    Users without a value (NaN) are left out, and so are metrics without a user.
    """
    summary = {}
    for name, value in values.items():
        known = value[~np.isnan(value)]
        if len(known):
            low, high = interval(known)
            summary[name] = {"mean": float(known.mean()), "low": low, "high": high}
    return summary
