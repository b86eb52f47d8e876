"""One step of a mixture of n-grams that learns from scores, example by example and item by item."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


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
