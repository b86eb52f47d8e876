"""Slow statements of the two-stage softmax, with literal exp and log, one item at a time, in float64."""

import math
from collections.abc import Sequence


def probability(
    cluster_scores: Sequence[float], clusters: Sequence[Sequence[float]], cluster: int, place: int
) -> float:
    """p(cluster) p(item | cluster) for the item at `place` of `cluster`; `clusters` holds items' scores."""
    of_cluster = math.exp(cluster_scores[cluster]) / sum(math.exp(score) for score in cluster_scores)
    members = clusters[cluster]
    return of_cluster * math.exp(members[place]) / sum(math.exp(score) for score in members)
