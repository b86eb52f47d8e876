"""Slow statements of the distributions that samplers draw from, by loops in float64."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


def kernel(alpha: float, query: Sequence[float], vector: Sequence[float]) -> float:
    """alpha <h, w>^2 + 1."""
    product = sum(float(h) * float(w) for h, w in zip(query, vector, strict=True))
    return alpha * product**2 + 1.0


def kernel_shares(
    alpha: float, query: NDArray[np.float32], vectors: NDArray[np.float32]
) -> NDArray[np.float64]:
    """q [N]: each item's kernel over the sum of all."""
    return np.array(shares([kernel(alpha, query.tolist(), vector) for vector in vectors.tolist()]))


def positive_feature(vector: Vectors, direction: Vectors, sharpness: float) -> float:
    """exp(g'x - |x|^2 / 2) of x = sqrt(sharpness) times the vector."""
    scaled = [math.sqrt(sharpness) * float(part) for part in vector]
    inner = sum(part * float(other) for part, other in zip(scaled, direction, strict=True))
    return math.exp(inner - sum(part * part for part in scaled) / 2)


def positive_proposal(query: Vectors, items: Vectors, directions: Vectors, sharpness: float) -> list[float]:
    """The shares of sum_f phi_f(h) phi_f(w_i)."""
    return shares(
        [
            sum(
                positive_feature(query, direction, sharpness) * positive_feature(item, direction, sharpness)
                for direction in directions
            )
            for item in items
        ]
    )


def fourier_kernel(query: Vectors, item: Vectors, directions: Vectors, sharpness: float) -> float:
    """The mean over directions of cos cos + sin sin, with the vectors sqrt(sharpness) times as long."""
    total = 0.0
    for direction in directions:
        of_query, of_item = (
            math.sqrt(sharpness) * sum(float(g) * float(x) for g, x in zip(direction, vector, strict=True))
            for vector in (query, item)
        )
        total += math.cos(of_query) * math.cos(of_item) + math.sin(of_query) * math.sin(of_item)
    return total / len(directions)


def shares(weights: Sequence[float]) -> list[float]:
    """The weights over their sum."""
    total = sum(weights)
    return [weight / total for weight in weights]


@dataclass
class Mixture:
    """Shares of the uniform distribution, the unigram and the bigram, with the tables of both."""

    shares: list[float]
    unigram: list[float]
    bigram: dict[tuple[int, int], float]

    def parts(self, last: int, item: int) -> list[float]:
        """How likely each component, with its share, makes the item."""
        made = (1.0 / len(self.unigram), self.unigram[item], self.bigram.get((last, item), 0.0))
        return [share * probability for share, probability in zip(self.shares, made, strict=True)]

    def origin(self, last: int, items: Sequence[int], corrected: Sequence[float]) -> list[float]:
        """The mean probability of each component to have made an item, under the softmax of the scores."""
        total = sum(math.exp(score) for score in corrected)
        means = [0.0, 0.0, 0.0]
        for item, score in zip(items, corrected, strict=True):
            parts = self.parts(last, item)
            for number in range(3):
                means[number] += math.exp(score) / total * parts[number] / sum(parts)
        return means


def redistributed(
    table: dict[tuple[int, int], float], lines: Sequence[Sequence[tuple[tuple[int, int], float]]], rate: float
) -> dict[tuple[int, int], float]:
    """The table after lines of keys with scores; keys that it lacks are left alone."""
    wanted: dict[tuple[int, int], list[float]] = defaultdict(list)
    for line in lines:
        known = {key: score for key, score in line if key in table}
        mass = sum(table[key] for key in known)
        total = sum(math.exp(score) for score in known.values())
        for key, score in known.items():
            wanted[key].append(mass * math.exp(score) / total)
    moved = dict(table)
    for key, targets in wanted.items():
        for _ in targets:
            moved[key] += rate * (sum(targets) / len(targets) - moved[key])
    return moved
