"""Masks of allowed rows, their derived forms for searches, and their cache."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property
from sys import getsizeof
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# A cache holds at most this many bytes, but always keeps a few masks, however large the catalog is.
MASK_BYTES = 64_000_000
# A mask has one byte a row, and holds its allowed rows as int64 where they are few.
_ROW_BYTES = 5
_FEWEST, _MOST = 4, 512
T = TypeVar("T")


class RowMask:
    """The rows for which `mask` [N] is true, and how many they are.

    `origin` is the filter that made the mask, if a filter did; an engine is sent the filter, not the rows.
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
        result: T = self._derived[form]
        return result


class MaskCache:
    """Least-recently-used masks by key, up to `MASK_BYTES` with their keys and origins."""

    def __init__(self) -> None:
        self.size = 0  # bytes
        self._masks: OrderedDict[Hashable, tuple[RowMask, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._masks)

    def get(self, key: Hashable, make: Callable[[], NDArray[np.bool_]], origin: object = None) -> RowMask:
        """The cached mask of `key`; if there is none, `make` makes it, read-only and with this `origin`."""
        with self._lock:
            cached = self._masks.get(key)
            if cached is not None:
                self._masks.move_to_end(key)
                return cached[0]
        mask = make()
        mask.flags.writeable = False
        allowed = RowMask(mask, origin)
        size = _ROW_BYTES * len(mask) + bytes_of(key)
        with self._lock:
            _, before = self._masks.pop(key, (None, 0))  # another thread may have made the mask, too
            self._masks[key] = allowed, size
            self.size += size - before
            while len(self) > _MOST or (len(self) > _FEWEST and self.size > MASK_BYTES):
                _, (_, gone) = self._masks.popitem(last=False)
                self.size -= gone
        return allowed


def bytes_of(value: object) -> int:
    """The bytes of a tuple or a condition, with the values in it."""
    inner = value if isinstance(value, tuple) else getattr(value, "__dict__", {}).values()
    return getsizeof(value) + sum(map(bytes_of, inner))
