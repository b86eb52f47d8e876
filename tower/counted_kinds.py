"""The events of a history that a bundle reads, and the events whose items it leaves out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.kinds import Seen, left_out_for, negative_kinds, read_kinds
from turret.data.vocabulary import Id, Vocabulary
from turret.tower.format.manifest import ModelCard
from turret.tower.repeats import Slot
from turret.tower.times import Times

Mask = NDArray[np.bool_]


class Counted(NamedTuple):
    """Masks of T events, bool [T]: events that histories have, and events whose items are left out.

    `codes` int64 [T] are the codes of `data.kinds` for the events that histories have, -1 for no known kind.
    """

    are_read: Mask
    are_left_out: Mask
    codes: NDArray[np.int64]


class CountedKinds:
    """How the events of a history count for a bundle, by their kinds and by its rule of duplicates.

    An event without a kind has the default kind; if there is none, it is read and has no known kind. Negative
    kinds leave out items and are not read. Ignored kinds, and kinds that the bundle doesn't have, do neither.
    A bundle without kinds reads all events. The events that are read are merged as in preparation
    (`data.histories.duplicates`), with the weights of their kinds; a merged event leaves out its item as its
    kind says. Where a request says by `exclude_seen` whose items are left out, each event counts for that,
    merged or not.

    `span`: for how long at most (ms) an event of any kind keeps its item out of answers.
    """

    def __init__(self, manifest: ModelCard, exclude_seen: Seen = None) -> None:
        table, self._merging = manifest.kinds, manifest.merging
        seen = manifest.exclude_seen if exclude_seen is None else exclude_seen
        read = read_kinds(table)
        names = [*read, *negative_kinds(table)]
        if not table and isinstance(seen, tuple):
            names = list(seen)
        # Two codes follow the codes of the names: of events without a kind, and of events of any other kind.
        self._codes: dict[str | None, int] = {name: code for code, name in enumerate([*names, None])}
        spans = left_out_for(table, seen, names)
        self._spans = np.array([*spans, 0.0 if table else spans[-1]])
        self._read = np.arange(len(self._spans)) if table else np.full(len(self._spans), -1)
        self._read[len(names)] = -1
        self._are_read = self._read < max(len(read), 1)
        self._codes[None] = self._code(manifest.default_kind)
        weights = np.array([*(table[name].weight for name in read), 1.0], dtype=np.float32)
        self._weights = weights if (weights != 1.0).any() else None
        self._merges_left_out = exclude_seen is None
        self.has_kinds = bool(table)
        self.span: float = self._spans.max()

    @property
    def leaves_out_all(self) -> bool:
        """Whether each event that is read leaves out its item for ever."""
        codes = [*self._codes.values()]
        return bool(np.isinf(self._spans[codes][self._are_read[codes]]).all())

    def count(
        self, items: Sequence[Id], kinds: Sequence[str | None], times: Sequence[int] | None, request_ms: float
    ) -> Counted:
        """Count events, oldest first, by their kinds (empty: no event has a kind), for an answer at a time.

        Times are in milliseconds; `request_ms` is that of the answer, and of events without times.
        """
        codes = self.codes(kinds) if kinds else np.full(len(items), self._codes[None])
        numbers = np.zeros(len(items), dtype=np.int64)
        if self._merging.policy != "keep":
            known: dict[str, int] = {}  # an id may be a number or its text
            numbers = np.array([known.setdefault(str(item), len(known)) for item in items], dtype=np.int64)
        when = None if times is None else np.array(times, dtype=np.int64)
        return self.count_of_each(np.zeros_like(numbers), numbers, codes, when, request_ms)

    def codes(self, kinds: Sequence[str | None]) -> NDArray[np.int64]:
        """The codes [T] of kinds for `count_of_each`; None for an event without a kind."""
        return np.fromiter(map(self._code, kinds), np.int64, len(kinds))

    def count_of_each(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.integer[Any]],
        codes: NDArray[np.int64],
        times: NDArray[np.int64] | None,
        request_ms: NDArray[np.int64] | float,
    ) -> Counted:
        """`count` for the events [T] of several users, sorted by user and, within a user, in order.

        `items` are numbers of the items, equal for equal items, `codes` those of `codes`, and `request_ms`
        the time of the answer, of each event or of all.
        """
        spans, are_read = self._spans[codes], self._are_read[codes]
        are_left_out = spans > 0
        if times is not None and np.isfinite(self._spans[self._spans > 0]).any():
            are_left_out &= request_ms - times.astype(np.float64) < spans
        codes = self._read[codes]
        if self._merging.policy != "keep" and len(items) > 1:
            is_merged = np.zeros(len(items), dtype=np.bool_)
            is_merged[are_read] = ~self._kept(users, items, codes, times, are_read)
            are_read = are_read & ~is_merged
            if self._merges_left_out:
                are_left_out &= ~is_merged
        return Counted(are_read, are_left_out, codes)

    def settled(self, times: Sequence[int]) -> slice:
        """The slice of the newest events, at `times` in ms, that older events can't replace."""
        return self._merging.settled(times)

    def _kept(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.integer[Any]],
        codes: NDArray[np.int64],
        times: NDArray[np.int64] | None,
        are_read: Mask,
    ) -> Mask:
        when, kinds = None if times is None else times[are_read], codes[are_read]
        weights = None if self._weights is None else self._weights[kinds]
        return self._merging.kept(users[are_read], items[are_read], when, kinds, weights)

    def _code(self, kind: str | None) -> int:
        return self._codes.get(kind or None, len(self._spans) - 1)


def refusal_of(among: Slot, manifest: ModelCard, exclude_seen: Seen = None) -> str | None:
    """The reason why a bundle has no answer in this slot for any history; None if it can have one."""
    if among != "all" and manifest.reads_queries:
        return f"version {manifest.version} answers queries and reads no history; leave this out"
    if among == "again" and CountedKinds(manifest, exclude_seen).leaves_out_all:
        reason = f"version {manifest.version} leaves out all used items here, so none is answered again"
        return f"{reason}; set exclude_seen to false, or to the kinds whose items are left out"
    return None


class ReadHistory(NamedTuple):
    """A history as a bundle reads it: the known items, merged, without those of kinds that are not read.

    `rows` int64 [T], their `times`, None where they are unknown, and the codes of their `kinds` int64 [T],
    None for a bundle without kinds. `left_out` int64 [S] are the rows that answers leave out, `unknown` the
    ids of read events without a row.
    """

    rows: NDArray[np.int64]
    times: Times | None
    kinds: NDArray[np.int64] | None
    left_out: NDArray[np.int64]
    unknown: list[Id]


def read_history(
    vocabulary: Vocabulary,
    counted: CountedKinds,
    items: Sequence[Id],
    kinds: Sequence[str | None] = (),
    times: Times | None = None,
) -> ReadHistory:
    """Read events, oldest first, with their kinds (empty: no event has one)."""
    when = None if times is None else np.rint(1_000 * times.events).astype(np.int64).tolist()
    request_ms = 0.0 if times is None else round(1_000 * times.request)
    are_read, are_left_out, codes = counted.count(items, kinds, when, request_ms)
    vocabulary_rows = [vocabulary.row(item) for item in items]
    rows = np.array([-1 if row is None else row for row in vocabulary_rows], dtype=np.int64)
    are_known = rows >= 0
    return ReadHistory(
        rows[are_read & are_known],
        None if times is None else Times(times.events[are_read & are_known], times.request),
        codes[are_read & are_known] if counted.has_kinds else None,
        rows[are_left_out & are_known],
        [items[place] for place in np.flatnonzero(are_read & ~are_known).tolist()],
    )
