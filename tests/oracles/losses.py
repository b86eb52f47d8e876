"""Slow statements of losses, with literal exp and log, one example at a time, in float64."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Example:
    """The positive's score and expected count, and each candidate's, with whether the candidate is valid."""

    positive: float
    count: float
    scores: Sequence[float]
    counts: Sequence[float]
    valid: Sequence[bool]

    @property
    def candidates(self) -> list[tuple[float, float]]:
        """Score and expected count of the valid candidates."""
        return [
            (score, count)
            for score, count, valid in zip(self.scores, self.counts, self.valid, strict=True)
            if valid
        ]


def sigmoid(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score))


def mean(terms: list[float]) -> float:
    return sum(terms) / len(terms) if terms else 0.0


def estimated_sum(example: Example) -> float:
    return sum(math.exp(score) / count for score, count in example.candidates)


def sampled_softmax(example: Example) -> float:
    return math.log(math.exp(example.positive) + estimated_sum(example)) - example.positive


def sampled_softmax_corrected(example: Example) -> float:
    own = math.exp(example.positive) / example.count
    return -math.log(own / (own + estimated_sum(example)))


def top_k_off_policy(example: Example, k: int, propensity: float | None = None, clip: float = 20.0) -> float:
    share = math.exp(example.positive) / (math.exp(example.positive) + estimated_sum(example))
    importance = 1.0 if propensity is None else min(share / propensity, clip)
    return -importance * k * (1.0 - share) ** (k - 1) * math.log(share)


def subset_softmax(example: Example) -> float:
    own = math.exp(example.positive)
    return -math.log(own / (own + sum(math.exp(score) for score, _ in example.candidates)))


def standard_importance(example: Example) -> float:
    return math.log(estimated_sum(example)) - example.positive if example.candidates else 0.0


def positive_share(example: Example) -> float:
    own = math.exp(example.positive)
    return own / (own + estimated_sum(example))


def refined_logq(example: Example) -> float:
    return (1.0 - positive_share(example)) * standard_importance(example)


def nce(example: Example) -> float:
    total = -math.log(sigmoid(example.positive - math.log(example.count)))
    for score, count in example.candidates:
        total -= math.log(1.0 - sigmoid(score - math.log(count)))
    return total


def binary_cross_entropy(example: Example) -> float:
    negatives = sum(math.log(1.0 - sigmoid(score)) for score, _ in example.candidates)
    return -math.log(sigmoid(example.positive)) - negatives


def negative_sampling(example: Example) -> float:
    negatives = [math.log(1.0 - sigmoid(score)) for score, _ in example.candidates]
    return -math.log(sigmoid(example.positive)) - mean(negatives)


def gbce(example: Example, t: float, item_count: int) -> float:
    drawn = len(example.candidates)
    # Petrov & Macdonald's form divides by alpha, and its limit at alpha = 0 is 1 - t.
    alpha = drawn / (item_count - 1)
    beta = alpha * (t * (1 - 1 / alpha) + 1 / alpha) if drawn else 1 - t
    total = math.log(sigmoid(example.positive) ** beta)
    for score, _ in example.candidates:
        total += math.log(1.0 - sigmoid(score))
    return -total / (drawn + 1)


def blackout(example: Example) -> float:
    weights = [math.exp(example.positive) / example.count]
    weights += [math.exp(score) / count for score, count in example.candidates]
    shares = [weight / sum(weights) for weight in weights]
    return -math.log(shares[0]) - sum(math.log(1.0 - share) for share in shares[1:])


def ranking(example: Example, delta: float) -> float:
    return mean([-math.log(sigmoid(example.positive - score - delta)) for score, _ in example.candidates])


def ranking_hinge(example: Example, delta: float) -> float:
    return mean([max(0.0, delta - example.positive + score) for score, _ in example.candidates])


def cosine_embedding(example: Example, margin: float) -> float:
    return 1.0 - example.positive + mean([max(0.0, score - margin) for score, _ in example.candidates])


def spherical_softmax(scores: Sequence[float], positive: int, epsilon: float) -> float:
    weights = [score * score + epsilon for score in scores if score != -math.inf]
    return -math.log((scores[positive] ** 2 + epsilon) / sum(weights))


def full(scores: NDArray[np.float64], positive: int) -> float:
    """log sum exp over the catalog minus the positive's score."""
    return math.log(sum(math.exp(score) for score in scores)) - float(scores[positive])


def full_gradient(scores: NDArray[np.float64], positive: int) -> NDArray[np.float64]:
    """The gradient of `full` by the scores: softmax minus one-hot."""
    shares: NDArray[np.float64] = np.array([math.exp(score) for score in scores])
    shares /= shares.sum()
    shares[positive] -= 1.0
    return shares


def all_draws(q: Sequence[float], size: int) -> list[tuple[tuple[int, ...], float]]:
    """Every ordered draw with replacement of `size` items, with its probability."""
    draws = itertools.product(range(len(q)), repeat=size)
    return [(draw, math.prod(q[item] for item in draw)) for draw in draws]
