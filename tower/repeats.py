"""The repeat term: the gain of an item of the user's own history over its score by the towers.

The gain is a sum of learned weights, one for each feature of an item that the user has used: how many events
and how long ago, how often, whether it is due again, how popular it is, and how often this user repeats at
all. Recency and frequency predict repeats (Anderson et al. 2014, "The dynamics of repeat consumption").
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from turret.data.histories.duplicates import Merging
from turret.tower.config import Settings
from turret.tower.times import Times

# A repeat term reads this many of a user's newest events: as many as a request may have.
EVENTS = 1_000
_MINUTE, _SHARES, _DUE = 60.0, 8, 8
# A number has one weight, and a class one for each of its values; CLASSES has the number of values.
NUMBERS = ("count", "taken", "popularity")
_DUE_SIZE = 2 * _DUE + 2
CLASSES = {"recency": 11, "share": _SHARES, "length": 11, "age": 24, "due": _DUE_SIZE, "usual": _DUE_SIZE}
_TIMED, _OF_KINDS = ("age", "due", "usual"), ("recency", "age")

Slot = Literal["all", "new", "again"]
"""The items that an answer ranks: all items, items without a use in the user's history, or used items."""

Rows = NDArray[np.integer[Any]]
Scores = NDArray[np.float32]


class Events(NamedTuple):
    """The events of B histories, end to end, oldest first: a repeat term reads the newest `EVENTS` of each.

    Attributes:
        rows: int64 [P], their items.
        lengths: int64 [B], the number of events of each history.
        times: float64 [P], when the events were, in seconds; None where times are unknown.
        request_times: float64 [B], when each history is ranked for; None without times.
        kinds: int64 [P], the codes of their kinds (`data.kinds`); None where all are alike.
    """

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]
    times: NDArray[np.float64] | None = None
    request_times: NDArray[np.float64] | None = None
    kinds: NDArray[np.int64] | None = None

    @classmethod
    def of_one(
        cls, rows: Rows, times: Times | None = None, kinds: Rows | None = None, merging: Merging | None = None
    ) -> "Events":
        """The uses in one history of rows, oldest first, whose events were merged by the rule `merging`."""
        events = cls(
            np.asarray(rows, dtype=np.int64),
            np.array([len(rows)]),
            None if times is None else times.events,
            None if times is None else np.array([times.request]),
            None if kinds is None else np.asarray(kinds, dtype=np.int64),
        )
        return events if merging is None else events.uses(merging)

    def rows_of(self, among: Slot, excluded: Rows) -> tuple[Rows, NDArray[np.int64] | None]:
        """The rows that an answer leaves out, with `excluded`, and the rows that it ranks (None: all)."""
        if among == "all":
            return excluded, None
        used = np.unique(self.rows)
        return (excluded, used) if among == "again" else (np.concatenate([excluded, used]), None)

    def uses(self, merging: Merging) -> "Events":
        """The events that are uses of their items: all but the signals of a visit that goes on."""
        mask = merging.uses(self.lengths, self.times, self.request_times, self.kinds)
        if mask is None or mask.all():
            return self
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return Events(
            self.rows[mask],
            np.bincount(owners[mask], minlength=len(self.lengths)),
            None if self.times is None else self.times[mask],
            self.request_times,
            None if self.kinds is None else self.kinds[mask],
        )


def class_sizes(timed: bool, kinds: int) -> dict[str, int]:
    """The number of values of each class, with or without times, for histories of `kinds` kinds."""
    sizes = {name: size for name, size in CLASSES.items() if timed or name not in _TIMED}
    for name in _OF_KINDS if timed else _OF_KINDS[:1]:
        sizes |= {f"{name} of {kind}": CLASSES[name] + 1 for kind in range(kinds)}
    return sizes


class ItemUse(NamedTuple):
    """How the items of a catalog were used in training.

    `popularity` is int64 [N], the targets of each item; `gaps` float32 [N], the usual seconds until a user
    takes the item again, 0 where the gap is unknown.
    """

    popularity: NDArray[np.int64]
    gaps: NDArray[np.float32]


class Used(NamedTuple):
    """The M distinct items of B histories, ordered by their history and their row.

    Attributes:
        owners: int64 [M], the index in [B].
        rows: int64 [M].
        numbers: float64 [M] each, by name.
        classes: int64 [M] each, by name.
    """

    owners: NDArray[np.int64]
    rows: NDArray[np.int64]
    numbers: dict[str, NDArray[np.float64]]
    classes: dict[str, NDArray[np.int64]]


def used_items(events: Events, items: ItemUse, kind_count: int = 0, targets: Sequence[int] = ()) -> Used:
    """The features of each item of each history.

    Events of the kinds `targets` take their item; without `targets`, all events do. The numbers are natural
    logarithms: of the uses, of the takes plus 1, and of the popularity plus 1; items from N on have none.
    The classes "recency", "length" and "age" are whole binary logarithms: of how many events ago the last use
    was, of the history's length, and of the minutes since the last use plus 1. "due" is the time since the
    last take relative to the mean time between takes, in halves of binary logarithms from 1 on, and 0 for an
    item taken once or never; "usual" is this time relative to the item's usual gap. "share" is the share of
    events that repeat an earlier item, in eighths. "recency of 2" and "age of 2" are the classes of the last
    event of the kind 2, plus 1, and 0 for an item without such an event.
    """
    rows, lengths, times, request_times, kinds = events
    owners, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
    order = np.lexsort((rows, owners))  # stable: the uses of an item stay in their order
    owners, rows = owners[order], rows[order]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (owners[1:] != owners[:-1])
    group = np.cumsum(is_first) - 1
    firsts = np.flatnonzero(is_first)
    uses = np.diff(np.append(firsts, len(rows)))
    owner, used = owners[firsts], rows[firsts]

    def latest(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The position of the last event of each item in the mask; -1 for an item without one."""
        positions = np.full(len(firsts), -1)
        positions[group[mask]] = order[mask]
        return positions

    codes = np.full(len(rows), -1) if kinds is None else np.asarray(kinds)[order]
    are_takes = np.ones(len(rows), dtype=np.bool_)
    if kinds is not None and targets:
        are_takes = np.isin(codes, targets)
    takes = np.bincount(group[are_takes], minlength=len(firsts))
    last = order[firsts + uses - 1]
    share = (lengths - np.bincount(owner, minlength=len(lengths)) + 0.5) / (lengths + 1.0)
    known = np.where(used < len(items.popularity), used, -1)
    trained = np.append(items.popularity, 0)[known]
    classes = {
        "recency": _log(ends[owner] - last),
        "share": np.floor(share * _SHARES).astype(np.int64)[owner],
        "length": _log(lengths)[owner],
    }
    if times is not None and request_times is not None:
        classes["age"] = _age(request_times[owner] - times[last])
        begun, taken = np.full(len(firsts), np.inf), latest(are_takes)
        np.minimum.at(begun, group[are_takes], times[order[are_takes]])
        age = np.where(takes > 0, request_times[owner] - times[taken], 0.0)
        span = np.where(takes > 1, times[taken] - begun, 0.0)
        classes["due"] = _due(age, span / np.maximum(takes - 1, 1))
        classes["usual"] = _due(age, np.where(takes > 0, np.append(items.gaps, 0.0)[known], 0.0))
    for kind in range(0 if kinds is None else kind_count):
        newest = latest(codes == kind)
        is_used = newest >= 0
        classes[f"recency of {kind}"] = np.where(is_used, _log(ends[owner] - newest) + 1, 0)
        if times is not None and request_times is not None:
            classes[f"age of {kind}"] = np.where(is_used, _age(request_times[owner] - times[newest]) + 1, 0)
    numbers = {"count": np.log(uses), "taken": np.log1p(takes), "popularity": np.log1p(trained)}
    return Used(owner, used.astype(np.int64), numbers, classes)


def _due(age: NDArray[np.float64], between: NDArray[np.float64]) -> NDArray[np.int64]:
    """The class of an item by its age and the time between its takes, 0 where this time is unknown."""
    # The whole part of the logarithm of a square counts halves.
    halves = _log(np.square(age / np.where(between > 0, between, 1.0)))
    due = np.clip(np.where(age > 0, halves, -_DUE), -_DUE, _DUE) + _DUE + 1
    return np.where(between > 0, due, 0)


def _age(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.minimum(_log(1.0 + np.maximum(seconds, 0.0) / _MINUTE), CLASSES["age"] - 1)


def _log(values: NDArray[Any]) -> NDArray[np.int64]:
    """The whole part of the binary logarithm of positive values."""
    logarithms: NDArray[np.int64] = np.frexp(values)[1].astype(np.int64) - 1
    return logarithms


class Bonus(NamedTuple):
    """The gains of the distinct items of a history, `values` + `slope` x score; `rows` int64 [M] ascend."""

    rows: NDArray[np.int64]
    values: Scores
    slope: np.float32

    def gains(self, rows: Rows, scores: Scores) -> Scores:
        """The gain of each of `rows` [R] over its score [R] by the towers, 0 for other items: float32 [R]."""
        if not len(self.rows):
            return np.zeros_like(scores)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        gained: Scores = np.where(
            self.rows[places] == rows, self.values[places] + self.slope * scores, np.float32(0.0)
        )
        return gained


class RepeatWeights(Settings):
    """The weights of the features by name, and that of the item's score by the towers, `slope`."""

    slope: float = 0.0
    numbers: dict[str, float] = Field(default={})
    classes: dict[str, tuple[float, ...]] = Field(default={})

    @model_validator(mode="after")
    def _fit(self) -> "RepeatWeights":
        kinds = sum(name.startswith("recency of ") for name in self.classes)
        sizes = {name: len(values) for name, values in self.classes.items()}
        if not (sizes.items() <= class_sizes(True, kinds).items() and self.numbers.keys() <= set(NUMBERS)):
            raise ValueError("the weights of repeats are of another release; train and export again")
        return self

    @cached_property
    def _tables(self) -> dict[str, NDArray[np.float64]]:
        return {name: np.array(weights) for name, weights in self.classes.items()}

    def values(self, used: Used) -> Scores:
        """The gain of each item without the part that depends on its score: float32 [M]."""
        total = np.zeros(len(used.rows))
        for name, weight in self.numbers.items():
            total += weight * used.numbers[name]
        for name, weights in self._tables.items():
            if name in used.classes:
                total += weights[used.classes[name]]
        return total.astype(np.float32)


class RepeatTerm(Settings):
    """The weights of a model: `timed` where the times of events are known, else `untimed`.

    `timed` is None where the data has no times. `kinds` is the number of kinds that histories have, and
    `targets` are the codes of those that take an item.
    """

    untimed: RepeatWeights
    timed: RepeatWeights | None = None
    kinds: int = Field(default=0, ge=0)
    targets: tuple[Annotated[int, Field(ge=0)], ...] = ()

    @property
    def reads_times(self) -> bool:
        """Whether gains depend on the times of events, where these are known."""
        return self.timed is not None

    @property
    def reads_kinds(self) -> bool:
        """Whether gains depend on the kinds of events."""
        return self.kinds > 0

    def weights(self, events: Events) -> RepeatWeights:
        """The weights that apply to these events."""
        return self.untimed if self.timed is None or events.times is None else self.timed

    def used(self, events: Events, items: ItemUse) -> Used:
        """The items of these histories with the features that the term reads."""
        return used_items(events, items, self.kinds, self.targets)

    def bonus(
        self,
        rows: Rows,
        items: ItemUse,
        times: Times | None = None,
        kinds: NDArray[np.integer[Any]] | None = None,
        merging: Merging | None = None,
    ) -> Bonus:
        """The gains of the items of one history: `rows`, oldest first, with `times` where they are known.

        `merging` is the rule by which the events were merged, None if they were not.
        """
        newest = None if times is None else times.newest(EVENTS)
        events = Events.of_one(rows[-EVENTS:], newest, None if kinds is None else kinds[-EVENTS:], merging)
        weights, used = self.weights(events), self.used(events, items)
        return Bonus(used.rows, weights.values(used), np.float32(weights.slope))
