"""Slow statements of random features and of the proposals they make, by loops in float64."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


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
