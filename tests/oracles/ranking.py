"""Ranking metrics, full rankings and baselines by plain loops."""

import math
from collections.abc import Sequence

import numpy as np

Scores = Sequence[float]


def ranking(scores: Scores, seen: set[int]) -> list[int]:
    """Unseen items by falling score, ties by ascending number."""
    return sorted((i for i in range(len(scores)) if i not in seen), key=lambda i: (-scores[i], i))


def metric(name: str, ranked: Sequence[int], relevant: set[int]) -> float:
    """One metric such as ndcg@5 of one user."""
    kind, _, at = name.partition("@")
    top = list(ranked)[: int(at)]
    hits = [place for place, item in enumerate(top, start=1) if item in relevant]
    if kind == "hr":
        return float(len(hits) > 0)
    if kind == "recall":
        return len(hits) / len(relevant)
    if kind == "mrr":
        return 1 / hits[0] if hits else 0.0
    if kind == "map":
        return sum(count / place for count, place in enumerate(hits, 1)) / min(len(relevant), int(at))
    gained = sum(1 / math.log2(place + 1) for place in hits)
    best = sum(1 / math.log2(place + 1) for place in range(1, min(len(relevant), int(at)) + 1))
    return gained / best


def users_of(histories: Sequence[set[int]], item: int) -> set[int]:
    """The users of an item."""
    return {user for user, items in enumerate(histories) if item in items}


def shared(histories: Sequence[set[int]], first: int, second: int) -> int:
    """The number of users of both items."""
    return len(users_of(histories, first) & users_of(histories, second))


def least_squares_columns(matrix: np.ndarray, regularization: float) -> np.ndarray:
    """Weights [N, N] that predict each column from the others: one ridge regression an item."""
    items = matrix.shape[1]
    weights = np.zeros((items, items))
    for target in range(items):
        others = [item for item in range(items) if item != target]
        inputs = matrix[:, others]
        normal = inputs.T @ inputs + regularization * np.eye(len(others))
        weights[others, target] = np.linalg.solve(normal, inputs.T @ matrix[:, target])
    return weights
