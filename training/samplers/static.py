"""Proposals that know nothing of the query: uniform, and unigram to a power."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.errors import TrainingError
from training.samplers.alias import AliasTable
from training.samplers.contract import CountingSampler, DrawContext
from training.samplers.draw import Draw, drawn_with_replacement


class StaticSampler(CountingSampler):
    """K candidates a step, shared by the batch, drawn with replacement from one fixed proposal q.

    Bengio & Senecal 2008 draw so from the unigram; uniform is its power 0.
    """

    def __init__(self, weights: NDArray[np.float64], negatives: int, device: torch.device) -> None:
        self.negatives = negatives
        self.table = AliasTable(weights)
        self.log_q = torch.from_numpy(np.log(weights / weights.sum())).float().to(device)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [K] ids; `query` gives nothing to a static proposal."""
        ids = torch.from_numpy(self.table.draw(self.negatives, context.random)).to(positives.device)
        return drawn_with_replacement(ids, self.log_q, positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """The same q [N] for each of the B queries: [B, N]."""
        return self.log_q.exp().expand(len(query), -1)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(K q) of `ids`."""
        return math.log(self.negatives) + self.log_q[ids]


def uniform_sampler(item_count: int, negatives: int, device: torch.device) -> StaticSampler:
    """q = 1/N."""
    return StaticSampler(np.ones(item_count), negatives, device)


def unigram_sampler(
    counts: NDArray[np.int64], alpha: float, negatives: int, device: torch.device
) -> StaticSampler:
    """q proportional to (count + 1)^alpha (Mikolov et al. 2013 use alpha = 0.75).

    One is added to every count, so that an item without a training event can still be drawn, and its
    correction is finite without a floor under q.

    Raises:
        TrainingError: no item has a training event.
    """
    if not counts.any():
        raise TrainingError(
            "objective.sampler: no item has a training event to draw by; use kind = 'uniform'."
        )
    weights = (counts + 1).astype(np.float64) ** alpha
    return StaticSampler(weights, negatives, device)
