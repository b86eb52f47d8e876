"""Drawing until a number of items differ, worked out draw by draw."""

import math
from collections.abc import Sequence


def inclusion(q: Sequence[float], size: int) -> list[float]:
    """The chance of each item to be among the first `size` different ones, over all orders of coming."""
    chances = {frozenset[int](): 1.0}
    for _ in range(size):
        grown: dict[frozenset[int], float] = {}
        for seen, chance in chances.items():
            left = 1.0 - sum(q[item] for item in seen)
            for item in range(len(q)):
                if item not in seen:
                    wider = seen | {item}
                    grown[wider] = grown.get(wider, 0.0) + chance * q[item] / left
        chances = grown
    return [sum(chance for seen, chance in chances.items() if item in seen) for item in range(len(q))]


def mean_tries(q: Sequence[float], size: int) -> float:
    """The expected number of draws until `size` items differ."""
    chances = {frozenset[int](): 1.0}
    total = 0.0
    for _ in range(size):
        grown: dict[frozenset[int], float] = {}
        for seen, chance in chances.items():
            left = math.fsum(q[item] for item in range(len(q)) if item not in seen)
            total += chance / left
            for item in range(len(q)):
                if item not in seen:
                    wider = seen | {item}
                    grown[wider] = grown.get(wider, 0.0) + chance * q[item] / left
        chances = grown
    return total
