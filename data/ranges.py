"""Vectorised ranges of positions, distinct keys, and stable orders, for packed arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 63  # of a non-negative int64


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers `start ... start + length - 1` of every range [R], end to end: int64."""
    before = np.cumsum(lengths) - lengths
    positions: NDArray[np.int64] = np.repeat(starts - before, lengths)
    return positions + np.arange(len(positions), dtype=np.int64)


def groups(offsets: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Group R adjacent ranges, `offsets` int64 [R + 1], into runs of at most `limit` positions.

    Returns the index of the first range of each run, and R. A range that is longer than `limit` is a run of
    its own.
    """
    firsts, count = [0], len(offsets) - 1
    while firsts[-1] < count:
        end = int(np.searchsorted(offsets, offsets[firsts[-1]] + limit, side="right")) - 1
        firsts.append(max(end, firsts[-1] + 1))
    return np.array(firsts, dtype=np.int64)


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys, ascending.

    `np.unique` hashes the keys, which takes seventy times as long for keys that have a row and a value in the
    bits of one integer: 3 s for three million keys, which are sorted in 0.04 s.
    """
    ordered = np.sort(keys)
    unique_keys: NDArray[np.int64] = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return unique_keys


def stable_order(keys: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the stable order int64 [E] of rows by `keys` [E], the first key being the most significant.

    Integers that fit 63 bits together are packed into one integer, which NumPy sorts with vector
    instructions. That sort is not stable, so ties are sorted by position afterwards.
    """
    widths: list[int] = []
    if len(keys[0]) and all(key.dtype.kind == "i" for key in keys):
        lows = [int(key.min()) for key in keys]
        widths = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    if not widths or sum(widths) > _BITS:
        return np.lexsort(keys[::-1])
    packed = np.zeros(len(keys[0]), dtype=np.int64)
    for key, low, width in zip(keys, lows, widths, strict=True):
        packed <<= width
        packed |= key - np.int64(low)
    order = np.argsort(packed)
    packed = packed[order]
    is_new = packed[1:] != packed[:-1]
    if not is_new.all():
        # Rank and position fit one integer: sorting it restores the order of ties.
        rank = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(is_new, dtype=np.int64)])
        bits = len(order).bit_length()
        order = np.sort((rank << bits) | order) & ((1 << bits) - 1)
    return order


def lower_medians(
    values: NDArray[np.float64], groups: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the lower median of the values [M] in each of `count` groups, 0 for an empty one; and the sizes.

    `groups` is int64 [M], the group of each value.
    """
    ordered, sizes = values[np.lexsort((values, groups))], np.bincount(groups, minlength=count)
    middles = np.cumsum(sizes) - sizes + (sizes - 1) // 2
    medians = np.zeros(count)
    medians[sizes > 0] = ordered[middles[sizes > 0]]
    return medians, sizes
