"""The rule by which repeated events of a user with an item count, in preparation and in answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turret.data.configuration import Duplicates
from turret.data.kinds import Kind, target_codes
from turret.data.manifest import DataManifest
from turret.data.moments import milliseconds_of
from turret.data.ranges import stable_order

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Merging:
    """The rule that replaces the events of a user with one item by one of these events.

    "first" and "last" keep the oldest and the newest event; "strongest" prefers events of the kinds `targets`
    (codes; None where all are targets), then the largest weight, then the newest event; "exact" keeps the
    oldest of the events at the same time. With a `gap` in milliseconds, which ends a session, "strongest"
    chooses within each session.
    """

    policy: Duplicates = "keep"
    gap: float | None = None
    targets: tuple[int, ...] | None = None

    @classmethod
    def of(cls, policy: Duplicates, gap: str | None, kinds: Mapping[str, Kind]) -> "Merging":
        """Return the rule of these settings, for events of a table of kinds."""
        is_divided = policy == "strongest" and gap is not None
        targets = tuple(target_codes(kinds)) if kinds else None
        return cls(policy, milliseconds_of(gap) if gap and is_divided else None, targets)

    @classmethod
    def of_data(cls, manifest: DataManifest) -> "Merging":
        """Return the rule by which prepared data was made."""
        filters = manifest.settings["filters"]
        return cls.of(filters["duplicates"], filters["session_gap"], manifest.kinds)

    def kept(
        self,
        users: NDArray[np.integer[Any]],
        items: NDArray[np.integer[Any]],
        times: NDArray[Any] | None = None,
        kinds: NDArray[np.integer[Any]] | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> Mask:
        """Mask the events that count: bool [E], for E events sorted by user and, within a user, in order.

        `times` are in milliseconds. Without them, "exact" leaves all events as they are, and with a `gap` a
        session is a run of events with one item.
        """
        if self.policy == "keep" or (times is None and self.policy == "exact"):
            return np.ones(len(items), dtype=np.bool_)
        keys: list[NDArray[Any]] = [users, items]
        ranks: list[NDArray[Any]] = []
        if self.policy == "exact" and times is not None:
            keys.append(times)
        if self.policy == "strongest":
            if self.gap is not None:
                has_ended = np.diff(items, prepend=-1) != 0
                if times is not None:
                    has_ended = np.diff(times, prepend=0) > self.gap
                keys[0] = np.cumsum(has_ended | (np.diff(users, prepend=-1) != 0))
            if self.targets is not None and kinds is not None:
                ranks.append(np.isin(kinds, self.targets).astype(np.int8))
            if weights is not None:
                ranks.append(np.unique(weights, return_inverse=True)[1])  # integers are sorted faster
        order = stable_order([*keys, *ranks])  # stable: duplicates stay in order of time
        is_new = np.zeros(len(order), dtype=np.bool_)
        is_new[:1] = True
        for key in keys:
            is_new[1:] |= key[order][1:] != key[order][:-1]
        kept, is_last = np.zeros(len(order), dtype=np.bool_), self.policy in ("last", "strongest")
        kept[order] = np.append(is_new[1:], [True] * bool(len(order))) if is_last else is_new
        return kept

    def settled(self, times: Sequence[int]) -> slice:
        """Return which of a user's newest events, at `times` in ms, the user's older events can't replace."""
        if self.policy in ("keep", "last"):
            return slice(None)
        pauses = np.flatnonzero(np.diff(times) > (self.gap or 0))
        is_decided = len(pauses) > 0 and (self.policy == "exact" or self.gap is not None)
        return slice(int(pauses[0]) + 1 if is_decided else len(times), None)

    def uses(
        self,
        lengths: NDArray[np.int64],
        times: NDArray[np.float64] | None,
        request_times: NDArray[np.float64] | None,
        kinds: NDArray[np.integer[Any]] | None,
    ) -> Mask | None:
        """Mask the events of B histories that are uses of their items: bool [P]; None for all.

        A signal of the visit of the request is no use: a target of its item that comes in
        this visit replaces the signal, so no history of a target has such a signal. Without a `gap`, all
        events are one visit.

        Args:
            lengths: int64 [B]; the histories are end to end, oldest events first.
            times: float64 [P], in seconds; None where times, and so visits with a gap, are unknown.
            request_times: float64 [B], when each history is ranked for, in seconds; None without times.
            kinds: int64 [P], the codes of the events' kinds; None where all are targets.
        """
        if self.policy in ("keep", "exact") or self.targets is None or kinds is None:
            return None
        are_targets: Mask = np.isin(kinds, self.targets)
        if self.gap is None:
            return are_targets
        if times is None or request_times is None:
            return None
        lasts = (np.cumsum(lengths) - 1)[lengths > 0]
        following = np.append(times[1:], 0.0)
        following[lasts] = request_times[lengths > 0]
        breaks = np.cumsum(np.rint(1_000 * (following - times)) > self.gap)
        has_ended = np.repeat(breaks[lasts], lengths[lengths > 0]) > np.append(0, breaks[:-1])
        return are_targets | has_ended
