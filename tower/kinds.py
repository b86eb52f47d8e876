"""The kinds of a history's events that a bundle reads, and those whose items it leaves out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turret.data.kinds import Seen, left_out_for, read_kinds
from turret.tower.format.manifest import Manifest

Mask = NDArray[np.bool_]


class Counted(NamedTuple):
    """Of T events, bool [T], those that histories have and those whose items are left out; codes int64 [T].

    `codes` are those of `data.kinds`, -1 for no known kind, of the events that histories have.
    """

    are_read: Mask
    are_left_out: Mask
    codes: NDArray[np.int64]


class CountedKinds:
    """How the kinds of a bundle count. `span` is the longest time, in ms, for which one leaves out its items.

    An event without a kind has the default one; without a default, it is read and has no known kind. Negative
    kinds leave out items and are not read. Ignored kinds, and those that the bundle doesn't have, do neither.
    A bundle without kinds reads all events.
    """

    def __init__(self, manifest: Manifest, seen: Seen) -> None:
        table = manifest.kinds
        read = read_kinds(table)
        names = [*read, *(name for name, kind in table.items() if kind.role == "negative")]
        if not table and isinstance(seen, tuple):
            names = list(seen)
        # Behind the names are the codes of no kind, and of any other.
        self._codes: dict[str | None, int] = {name: code for code, name in enumerate([*names, None])}
        self._spans = np.append(left_out_for(table, seen, names), 0.0)
        self._read = np.arange(len(self._spans)) if table else np.full(len(self._spans), -1)
        self._read[len(names)] = -1
        self._are_read = self._read < max(len(read), 1)
        self._codes[None] = self._code(manifest.default_kind)
        self.span: float = self._spans.max()

    def count(self, kinds: Sequence[str | None], ages: NDArray[np.float64]) -> Counted:
        """Count events by their kinds (empty: none has one), and their ages in milliseconds [T]."""
        found = map(self._code, kinds) if kinds else [self._codes[None]] * len(ages)
        codes = np.fromiter(found, np.int64, len(ages))
        spans = self._spans[codes]
        return Counted(self._are_read[codes], (spans > 0) & (ages < spans), self._read[codes])

    def _code(self, kind: str | None) -> int:
        return self._codes.get(kind or None, len(self._spans) - 1)
