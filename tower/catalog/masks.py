"""Masks of allowed rows, their derived forms for searches, and their cache."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# The bytes of all masks of one cache, but for a few that are kept of a huge catalog.
MASK_BYTES = 64_000_000
# A mask has one byte a row, and its allowed rows as int64 where they are few.
_ROW_BYTES = 5
_FEWEST, _MOST = 4, 512
T = TypeVar("T")


class RowMask:
    """The rows for which `mask` [N] is true, and how many they are.

    `origin` is the filter that they meet, where one made the mask; an engine is sent that, not the rows.
    """

    def __init__(self, mask: NDArray[np.bool_], origin: object = None) -> None:
        self.mask = mask
        self.origin = origin
        self.count = int(np.count_nonzero(mask))
        self._derived: dict[Callable[[RowMask], Any], Any] = {}

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The allowed rows, ascending."""
        return np.flatnonzero(self.mask)

    def derived(self, form: Callable[["RowMask"], T]) -> T:
        """`form(self)`, computed once: the form in which a search engine takes the mask."""
        if form not in self._derived:
            self._derived[form] = form(self)
        made: T = self._derived[form]
        return made


class MaskCache:
    """Least-recently-used masks of `rows` rows by key."""

    def __init__(self, rows: int) -> None:
        self.capacity = min(_MOST, max(_FEWEST, MASK_BYTES // max(1, rows * _ROW_BYTES)))
        self._masks: OrderedDict[Hashable, RowMask] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._masks)

    def get(self, key: Hashable, make: Callable[[], NDArray[np.bool_]], origin: object = None) -> RowMask:
        """The mask of `key`, made read-only if it isn't cached, as one of `origin`."""
        with self._lock:
            cached = self._masks.get(key)
            if cached is not None:
                self._masks.move_to_end(key)
                return cached
        mask = make()
        mask.flags.writeable = False
        allowed = RowMask(mask, origin)
        with self._lock:
            self._masks[key] = allowed
            if len(self._masks) > self.capacity:
                self._masks.popitem(last=False)
        return allowed
