"""How recommendations spread over the catalog, beside the events of training and the targets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turret.training.inspection.rankings import Rankings

Counts = NDArray[np.int64]
GROUPS = 10


@dataclass(frozen=True)
class Spread:
    """The distribution of some item occurrences over the catalog.

    Attributes:
        shares: the share of occurrences in each tenth of the items, most popular items first.
        coverage: the share of items that occur at all.
        gini: the Gini coefficient of occurrences: 0 if all items occur equally often, near 1 if one has all.
        popularity: the mean number of training events of an occurring item.
    """

    shares: list[float]
    coverage: float
    gini: float
    popularity: float


@dataclass(frozen=True)
class Exposure:
    """The spread of training events, of targets and of the recommended items of all users."""

    events: Spread
    targets: Spread
    recommended: Spread


def exposure(rankings: Rankings) -> Exposure:
    """Count how often each item is recommended among the first k, and compare with the data."""
    popularity = rankings.data.item_counts("train")
    count = len(popularity)
    shown = rankings.rows[rankings.rows >= 0]
    return Exposure(
        events=spread(popularity, popularity),
        targets=spread(np.bincount(rankings.relevant.rows, minlength=count), popularity),
        recommended=spread(np.bincount(shown, minlength=count), popularity),
    )


def spread(counts: Counts, popularity: Counts) -> Spread:
    """The spread of occurrences `counts` [N] of items with `popularity` [N] training events."""
    total = max(int(counts.sum()), 1)
    order = np.argsort(-popularity, kind="stable")
    groups = np.array_split(counts[order], min(GROUPS, len(counts)))
    return Spread(
        shares=[float(group.sum() / total) for group in groups],
        coverage=float((counts > 0).mean()),
        gini=gini(counts),
        popularity=float((counts * popularity).sum() / total),
    )


def gini(counts: Counts) -> float:
    """The Gini coefficient of counts [N]: half the mean absolute difference over the mean; 0 of none."""
    total, size = int(counts.sum()), len(counts)
    if not total:
        return 0.0
    ranks = np.arange(1, size + 1)
    return float((2 * ranks - size - 1) @ np.sort(counts) / (size * total))
