"""Slow statements of losses in buckets, clusters and trees, with literal exp and log."""

import math
from collections.abc import Sequence


def bucketed_losses(
    scores: Sequence[Sequence[float]],
    positives: Sequence[int],
    buckets: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[float | None]:
    """Each example's greatest loss over the buckets (examples, items) that hold it, None in no bucket."""
    found: list[float | None] = []
    for example, (line, positive) in enumerate(zip(scores, positives, strict=True)):
        values = []
        for examples, items in buckets:
            if example in examples:
                others = sum(math.exp(line[item]) for item in items if item != positive)
                values.append(math.log(math.exp(line[positive]) + others) - line[positive])
        found.append(max(values) if values else None)
    return found


def largest(values: Sequence[float], size: int) -> set[int]:
    """The places of the `size` largest."""
    return set(sorted(range(len(values)), key=lambda place: -values[place])[:size])


def two_stage_probability(
    cluster_scores: Sequence[float], clusters: Sequence[Sequence[float]], cluster: int, place: int
) -> float:
    """p(cluster) p(item | cluster) for the item at `place` of `cluster`; `clusters` holds items' scores."""
    of_cluster = math.exp(cluster_scores[cluster]) / sum(math.exp(score) for score in cluster_scores)
    members = clusters[cluster]
    return of_cluster * math.exp(members[place]) / sum(math.exp(score) for score in members)


def least_cost(counts: Sequence[int]) -> int:
    """The sum over leaves of count times depth in the best tree: that of all merges of the two rarest."""
    left, cost = sorted(counts), 0
    while len(left) > 1:
        merged = left[0] + left[1]
        cost += merged
        left = sorted([merged, *left[2:]])
    return cost


def path_probability(scores: Sequence[float], path: Sequence[tuple[int, int]]) -> float:
    """The product over (node, branch) of 1 / (1 + exp(-s)) for the branch +1, and of the rest for -1."""
    product = 1.0
    for node, branch in path:
        first = 1.0 / (1.0 + math.exp(-scores[node]))
        product *= first if branch > 0 else 1.0 - first
    return product
