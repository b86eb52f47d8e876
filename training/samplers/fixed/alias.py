"""Draws from a discrete distribution in constant time each."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.tower.kernels.compiled import compiled
from turret.training.errors import TrainingError

Weights = NDArray[np.float64]


def unigram_weights(counts: NDArray[np.int64], alpha: float, added: float = 1.0) -> Weights:
    """(count + added)^alpha of the [N] `counts` (Mikolov et al. 2013 use alpha = 0.75).

    With one added to every count an item without a training event can still be drawn, and its correction is
    finite without a floor under q; with zero added such an item is never drawn. Raises TrainingError where no
    item has a training event.
    """
    _check_counts(counts)
    weights = (counts + added) ** alpha
    return np.where(counts + added > 0.0, weights, 0.0)


def logs(values: Weights) -> Tensor:
    """The natural logarithms of `values`, float32; -inf for 0."""
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(values)).float()


def log_uniform_weights(counts: NDArray[np.int64]) -> Weights:
    """log(r + 2) - log(r + 1) for the item of rank r by falling `counts` [N], ties by row.

    The weights sum to log(N + 1). The weights are about Zipf's law, from ranks alone: TensorFlow's
    `log_uniform_candidate_sampler` takes the row for the rank. Raises TrainingError where no item has a
    training event.
    """
    _check_counts(counts)
    weights = np.empty(len(counts))
    weights[np.argsort(-counts, kind="stable")] = np.log1p(1.0 / np.arange(1, len(counts) + 1))
    return weights


def _check_counts(counts: NDArray[np.int64]) -> None:
    if not counts.any():
        raise TrainingError(
            "objective.sampler: no item has a training event to draw by; use kind = 'uniform'."
        )


Floats = NDArray[np.float64]


class AliasTable:
    """The alias method (Walker 1977): O(N) to build, O(1) a draw.

    Every cell holds the mass 1/N: a share `keep` of it belongs to the cell's own item, the rest to `other`.
    """

    def __init__(self, weights: Floats) -> None:
        """Build from [N] weights, of which some are positive; their sum need not be one."""
        self.keep = np.empty(len(weights))
        self.other = np.empty(len(weights), dtype=np.int64)
        fill_cells(weights * (len(weights) / weights.sum()), self.keep, self.other)

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """`count` items, independent and with replacement: int64 [count]."""
        cells = random.integers(len(self.keep), size=count)
        return np.where(random.random(count) < self.keep[cells], cells, self.other[cells])


@compiled
def fill_cells(mass: Floats, keep: NDArray[np.floating[Any]], other: NDArray[np.signedinteger[Any]]) -> None:
    """Fill N cells of mass 1 with items of mean mass 1, in one sweep over the poor and one over the rich.

    The current rich item gives its surplus to poor cells until less than a cell is left of it; then it is
    a poor cell itself, which the next rich item fills up. This sweep (Huebschle-Schneider & Sanders 2022)
    needs no lists of the poor and the rich, and reads memory in order.
    """
    keep[:] = 1.0
    other[:] = np.arange(len(mass))
    poor, rich = _next_poor(mass, 0), _next_rich(mass, 0)
    rest = mass[rich] if rich < len(mass) else 0.0
    while rich < len(mass):
        if rest < 1.0:
            following = _next_rich(mass, rich + 1)
            if following < len(mass):
                keep[rich], other[rich] = rest, following
                rest += mass[following] - 1.0
            rich = following
        elif poor < len(mass):
            keep[poor], other[poor] = mass[poor], rich
            rest -= 1.0 - mass[poor]
            poor = _next_poor(mass, poor + 1)
        else:
            rich = len(mass)


@compiled
def _next_poor(mass: Floats, item: int) -> int:
    while item < len(mass) and mass[item] >= 1.0:
        item += 1
    return item


@compiled
def _next_rich(mass: Floats, item: int) -> int:
    while item < len(mass) and mass[item] < 1.0:
        item += 1
    return item
