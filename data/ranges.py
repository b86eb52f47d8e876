"""Many ranges of places as one array, for packed arrays without a loop."""

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers `start ... start + length - 1` of every range [R], end to end: int64."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.repeat(starts - before, lengths)
    return places + np.arange(len(places), dtype=np.int64)


def groups(offsets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Group R ranges that lie end to end, `offsets` int64 [R + 1], into runs of at most `most` places.

    Returns the number of the first range of every run, and R. A range that is longer is a run of its own.
    """
    firsts, count = [0], len(offsets) - 1
    while firsts[-1] < count:
        end = int(np.searchsorted(offsets, offsets[firsts[-1]] + most, side="right")) - 1
        firsts.append(max(end, firsts[-1] + 1))
    return np.array(firsts, dtype=np.int64)
