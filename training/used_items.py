"""The part of used items in a run: whether answers leave them out, and the towers' targets if not."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from turret.data.kinds import Seen, left_out_for, negative_kinds, read_kinds
from turret.data.prepared import PreparedData
from turret.data.ranges import ranges
from turret.tower.towers.user import SETS
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError

_USERS_A_BLOCK = 65536
_DAY = 86_400_000  # ms, the unit of times
# Older targets have the weight of this many half-lives, so that no batch is without a weight.
_MOST_HALVES = 20.0


def kind_spans(data: PreparedData, seen: Seen) -> NDArray[np.float64]:
    """The result of `left_out_for`. Raises TrainingError for a kind that the data doesn't have."""
    kinds = data.manifest.kinds
    known = [name for name, kind in kinds.items() if kind.role != "ignored"]
    unknown = [name for name in seen if name not in known] if isinstance(seen, tuple) else []
    if unknown:
        raise TrainingError(
            f"evaluation.exclude_seen names {unknown[0]!r}, and {data.folder} has "
            f"{', '.join(known) or 'no kinds'}; name some of these, or give true or false."
        )
    return np.array(left_out_for(kinds, seen))


def leaves_out_all(data: PreparedData, seen: Seen) -> bool:
    """Whether all used items are left out for ever, so that no repeat is ranked."""
    spans = kind_spans(data, seen)
    return bool(np.isinf(spans if data.kinds is None else spans[:-1]).all())


def consuming_kinds(data: PreparedData, seen: Seen) -> list[str]:
    """The kinds whose items are left out, for ever or for some days: kinds of histories, and negatives."""
    kinds = data.manifest.kinds
    names = [*read_kinds(kinds), *negative_kinds(kinds)]
    spans = left_out_for(kinds, seen, names)[:-1]
    return [name for name, span in zip(names, spans, strict=True) if span]


def wants_repeats(experiment: ExperimentConfig, data: PreparedData) -> bool:
    """Whether a run has a repeat term: where answers may have items of the user's history.

    A tower of sets then reads each item of a history once, at its first use: in training a repeat would tell
    the target, so the tower expects no repeat afterwards.

    Raises TrainingError for an unknown kind in `exclude_seen`, also where nothing is repeated.
    """
    is_repeated = not leaves_out_all(data, experiment.evaluation.exclude_seen)
    return is_repeated and experiment.training.repeats and not data.has_queries


@dataclass(frozen=True)
class Targets:
    """The events that the towers of a run learn to predict.

    Targets are all events, or the events of target kinds in data with kinds. Where a repeat term ranks the
    used items, targets are the first events of each user and item, which the term can't predict: events of
    signal kinds too, which are most of the events of a shop, with the weight `training.signal_weight`.

    `chosen` is bool [E]; None for all events. `first_uses` [E] are the first events of each user and item if
    a tower of sets reads them (`wants_repeats`), else None. `half_life` is the time in days in which weights
    halve, back from the newest event of the training part; 0 for equal ones. `of_places` float64 [K + 1] are
    the factors of the weights of events without a place and at the places 1 to K; None for equal ones.
    """

    data: PreparedData
    chosen: NDArray[np.bool_] | None
    signal_weight: float = 0.0
    first_uses: NDArray[np.bool_] | None = None
    half_life: float = 0.0
    of_places: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, experiment: ExperimentConfig, data: PreparedData) -> "Targets":
        """The targets of a run of this experiment."""
        chosen = None if data.kinds is None else data.are_targets(slice(None))
        half_life = experiment.training.half_life
        if half_life and data.manifest.time.kind != "timestamp":
            raise TrainingError(
                f"training.half_life = {half_life:g} needs times, and {data.folder} has only an order "
                f"({data.manifest.time.kind}); prepare the data with a column of times, or set it to 0."
            )
        clip = experiment.training.examination_clip
        of_places = place_weights(data, clip) if clip else None
        if not wants_repeats(experiment, data):
            return cls(data, chosen, half_life=half_life, of_places=of_places)
        first, weight = first_uses(data), experiment.training.signal_weight
        of_sets = first if experiment.tower.user.context in SETS else None
        chosen = first if chosen is None or weight else first & chosen
        return cls(data, chosen, weight, of_sets, half_life, of_places)

    @cached_property
    def _items_before(self) -> NDArray[np.int64]:
        """How many first uses are before each event: int64 [E + 1]."""
        assert self.first_uses is not None
        return np.append(0, np.cumsum(self.first_uses))

    def items_between(self, firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many first uses are from `firsts` [B] to `ends` [B] (exclusive): int64 [B]."""
        between: NDArray[np.int64] = self._items_before[ends] - self._items_before[firsts]
        return between

    def only(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The `positions` [P] whose events are targets."""
        return positions if self.chosen is None else positions[self.chosen[positions]]

    def weights(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """The weights of the targets at `positions` [B]: float32 [B]."""
        stored = self.data.weights
        weights = np.ones(len(positions), dtype=np.float32) if stored is None else stored[positions]
        if self.data.kinds is not None and self.signal_weight:
            weights = np.where(self.data.are_targets(positions), weights, self.signal_weight * weights)
        if self.half_life:
            days = (self.newest - self.data.times[positions]) / _DAY
            weights = (weights * age_weights(days, self.half_life)).astype(np.float32)
        if self.of_places is not None:
            assert self.data.places is not None
            weights = weights * self.of_places[self.data.places[positions].clip(max=len(self.of_places) - 1)]
        return weights.astype(np.float32, copy=False)

    @cached_property
    def newest(self) -> float:
        """The time of the last training event."""
        starts, ends = (np.asarray(bound) for bound in self.data.bounds("train"))
        return float(self.data.times[ends[ends > starts] - 1].max())


def item_weights(experiment: ExperimentConfig, data: PreparedData) -> NDArray[np.float64]:
    """The sums of the weights of each item's training targets by age (`training.half_life`): float64 [N].

    Without a half-life they are numbers of events. Items are ranked by them for users without a history.
    """
    half_life = experiment.training.half_life
    if not half_life:
        return data.item_counts("train").astype(np.float64)
    starts, ends = (np.asarray(bound) for bound in data.bounds("train"))
    events = data.only_targets(ranges(starts, ends - starts))
    weights = age_weights((Targets(data, None).newest - data.times[events]) / _DAY, half_life)
    return np.bincount(data.event_items[events], weights, minlength=len(data.item_ids)).astype(np.float64)


def age_weights(days: NDArray[np.float64], half_life: float) -> NDArray[np.float64]:
    """The weights of events of an age in `days` [E], which halve in each `half_life`: float64 [E]."""
    weights: NDArray[np.float64] = np.exp2(-np.minimum(days / half_life, _MOST_HALVES))
    return weights


def place_weights(data: PreparedData, clip: float) -> NDArray[np.float64]:
    """The weights [K + 1] of events without a place, 1, and at places 1 to K, 1 / examination up to `clip`.

    An item at a place that few users look at has its few outcomes from these few, so each of them stands for
    more (Joachims, Swaminathan and Schnabel, "Unbiased learning-to-rank with biased feedback", 2017, eq. 5).
    Raises TrainingError for data without an estimate of the examination, and for a clip that changes nothing.
    """
    if clip <= 1.0:
        raise TrainingError(
            f"training.examination_clip = {clip:g} makes all weights alike, as 1 / examination is at least "
            "1; set a value above 1, or 0 for equal weights."
        )
    if data.examination is None:
        reason = (
            "has events of no answer log; prepare the data with --answers"
            if data.places is None
            else "has answers that explored too little to estimate it; log for longer"
        )
        raise TrainingError(
            f"training.examination_clip = {clip:g} needs the examination of places, and {data.folder} "
            f"{reason}, or set it to 0."
        )
    return np.append(1.0, np.minimum(1.0 / np.asarray(data.examination), clip))


def first_uses(data: PreparedData) -> NDArray[np.bool_]:
    """The events that are the first one of their user and item: bool [E]."""
    is_first, offsets = np.zeros(len(data.event_items), dtype=np.bool_), np.asarray(data.offsets)
    for first in range(0, len(offsets) - 1, _USERS_A_BLOCK):
        bounds = offsets[first : first + _USERS_A_BLOCK + 1]
        events = np.arange(bounds[0], bounds[-1])
        is_first[events[firsts_of_each(data, events, np.diff(bounds))]] = True
    return is_first


def firsts_of_each(
    data: PreparedData, events: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Ascending indices in [P] of the first event of each item, for `events` [P] of histories [B]."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    keys = owners * len(data.item_ids) + data.event_items[events].astype(np.int64)
    return np.sort(np.unique(keys, return_index=True)[1])
