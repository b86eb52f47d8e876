"""Non-negative least squares of a few variables: what grows with what, from a few measured points."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np


def fit(
    points: Sequence[Mapping[str, float]], values: Sequence[float], names: Sequence[str]
) -> dict[str, float]:
    """Rates of `names` none negative, whose sums come closest to the values in relative terms.

    Each subset of the names is solved alone, and the best one without a negative rate is taken: of the at
    most five names there are few. A point holds 1 under "base".
    """
    target = np.asarray(values, dtype=np.float64)
    columns = {name: np.array([point[name] for point in points], dtype=np.float64) for name in names}
    best: tuple[float, dict[str, float]] = (np.inf, dict.fromkeys(names, 0.0))
    for count in range(1, min(len(names), len(points)) + 1):
        for chosen in combinations(names, count):
            matrix = np.stack([columns[name] / target for name in chosen], axis=1)
            scale = np.linalg.norm(matrix, axis=0)
            rates = np.linalg.lstsq(matrix / scale, np.ones(len(target)))[0] / scale
            error = float(np.sum((matrix @ rates - 1) ** 2))
            if (rates >= 0).all() and error < best[0] - 1e-12:
                best = error, dict.fromkeys(names, 0.0) | dict(zip(chosen, rates.tolist(), strict=True))
    return best[1]


def worst_error(
    points: Sequence[Mapping[str, float]], values: Sequence[float], rates: Mapping[str, float]
) -> float:
    """The largest relative error of the fit at a point."""
    fitted = [sum(rate * point[name] for name, rate in rates.items()) for point in points]
    return max(abs(one / value - 1) for one, value in zip(fitted, values, strict=True))
