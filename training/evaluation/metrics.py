"""Metrics with one value a user, their intervals, and the groups of users that they are reported for too.

The gate of activations reads it, without torch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
AUC = "auc"
# Resampled counts held at once: 80 MB.
MOST_COUNTS = 10_000_000
HISTORY_EDGES = (0, 1, 10, 50, 200)
HEAD_SHARE, TORSO_SHARE = 1 / 3, 2 / 3
USED, NEW = "item used before", "item new to the user"


def metrics_at(hits: NDArray[np.bool_], relevant: NDArray[np.int64], ks: Sequence[int]) -> dict[str, Values]:
    """Every metric at every k, by name such as `ndcg@10`.

    With r the number of relevant items of a user and h the hits among the first k ranks, from 1:
    hr@k = 1 if h > 0; recall@k = h / r; mrr@k = 1 / (rank of the first hit), else 0;
    map@k = sum of (hits up to the rank) / rank over hits, divided by min(r, k);
    ndcg@k = sum of 1 / log2(rank + 1) over hits, divided by that of min(r, k) hits at the top
    (Jarvelin & Kekalainen 2002).

    Args:
        hits: bool [U, K], whether the item at each rank is relevant; ranks beyond K count as misses.
        relevant: int64 [U], the number of relevant items of each user, at least 1.
        ks: the cut-offs.

    Returns:
        float64 [U] for each name.
    """
    ranks = np.arange(1, hits.shape[1] + 1)
    gains = hits / np.log2(ranks + 1)
    ideal = np.cumsum(1.0 / np.log2(ranks + 1))
    reciprocal = np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)
    precisions = hits * np.cumsum(hits, axis=1) / ranks
    values: dict[str, Values] = {}
    for k in ks:
        counts = hits[:, :k].sum(axis=1)
        values[f"hr@{k}"] = (counts > 0).astype(np.float64)
        values[f"recall@{k}"] = counts / relevant
        values[f"ndcg@{k}"] = gains[:, :k].sum(axis=1) / ideal[np.minimum(relevant, k) - 1]
        values[f"mrr@{k}"] = np.where(counts > 0, reciprocal, 0.0)
        values[f"map@{k}"] = precisions[:, :k].sum(axis=1) / np.minimum(relevant, k)
    return values


def bootstrap_interval(values: Values, replicates: int, random: np.random.Generator) -> tuple[float, float]:
    """The ends of the 95 % percentile bootstrap interval of the mean over users (Efron 1979).

    Args:
        values: float64 [U], one value a user.
        replicates: the number of resamples.
        random: the generator of the resamples.
    """
    # Users with the same value are interchangeable, so a resample is a multinomial over distinct values.
    distinct, counts = np.unique(values, return_counts=True)
    block = max(1, MOST_COUNTS // len(distinct))
    means = np.empty(replicates)
    for first in range(0, replicates, block):
        size = min(block, replicates - first)
        resampled = random.multinomial(len(values), counts / len(values), size=size)
        means[first : first + size] = resampled @ distinct / len(values)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def slices(
    history_lengths: NDArray[np.int64],
    popularity: NDArray[np.int64],
    targets: NDArray[np.int64],
    used_before: NDArray[np.bool_],
) -> dict[str, NDArray[np.bool_]]:
    """Group users by the length of their history, the popularity of their first target, and its earlier use.

    Args:
        history_lengths: int64 [U].
        popularity: int64 [N], training events of each item.
        targets: int64 [U], an item row for each user.
        used_before: bool [U], whether it is in the user's history.

    Returns:
        bool [U] for each group with members, by a name such as `history 10-49` or `target tail`.
    """
    groups = {}
    for low, high in zip(HISTORY_EDGES, [*HISTORY_EDGES[1:], None], strict=True):
        end = "+" if high is None else "" if high == low + 1 else f"-{high - 1}"
        members = (history_lengths >= low) & (history_lengths < (np.inf if high is None else high))
        groups[f"history {low}{end}"] = members
    kinds = popularity_kinds(popularity)[targets]
    for kind, name in enumerate(("head", "torso", "tail", "cold")):
        groups[f"target {name}"] = kinds == kind
    if used_before.any():
        groups |= {USED: used_before, NEW: ~used_before}
    return {name: members for name, members in groups.items() if members.any()}


def popularity_kinds(popularity: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for head, 1 for torso, 2 for tail, 3 for cold items: int64 [N]."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    share = before / max(int(popularity.sum()), 1)
    kinds = np.empty(len(popularity), dtype=np.int64)
    kinds[order] = np.searchsorted([HEAD_SHARE, TORSO_SHARE], share, side="right")
    kinds[popularity == 0] = 3
    return kinds
