"""Many ranges of places as one array, for packed arrays without a loop."""

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the integers `start ... start + length - 1` of every range [R], end to end: int64."""
    before = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.repeat(starts - before, lengths)
    return places + np.arange(len(places), dtype=np.int64)
