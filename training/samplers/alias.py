"""Draws from a discrete distribution in constant time each."""

import numpy as np
from numpy.typing import NDArray


class AliasTable:
    """Walker's alias method with Vose's construction (Vose 1991): O(N) to build, O(1) a draw.

    Every cell holds the mass 1/N: a share `keep` of it belongs to the cell's own item, the rest to `other`.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        """Build from [N] positive weights, which need not sum to one."""
        mass = weights * (len(weights) / weights.sum())
        self.keep = np.ones(len(weights))
        self.other = np.arange(len(weights), dtype=np.int64)
        poor = np.flatnonzero(mass < 1.0).tolist()
        rich = np.flatnonzero(mass >= 1.0).tolist()
        while poor and rich:
            cell, donor = poor.pop(), rich[-1]
            self.keep[cell], self.other[cell] = mass[cell], donor
            mass[donor] -= 1.0 - mass[cell]
            if mass[donor] < 1.0:
                poor.append(rich.pop())

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """`count` items, independent and with replacement: int64 [count]."""
        cells = random.integers(len(self.keep), size=count)
        return np.where(random.random(count) < self.keep[cells], cells, self.other[cells])
