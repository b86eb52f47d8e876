"""From the tempered scores of a draw to a loss: minus the log expected count, mask, reduction."""

import math

import torch
from torch import Tensor

from turret.training.samplers.core.contract import Draw


def minus_log_count(drawn: Tensor, draw: Draw) -> Tensor:
    """The logQ correction: tempered scores [B, K] less the log of each candidate's expected count."""
    return drawn - draw.log_count


def masked(corrected: Tensor, draw: Draw) -> Tensor:
    """Scores [B, K] with minus infinity in place of masked candidates.

    That is no softmax mass, a sigmoid or hinge loss of zero, and a gradient of exactly zero for any
    score.
    """
    return torch.where(draw.valid, corrected, float("-inf"))


def log_sum_exp(scores: Tensor) -> Tensor:
    """log sum_j exp s_j over masked scores [B, K]: [B], minus infinity where no candidate is left.

    Such an example gets a gradient of zero instead of the nan of `torch.logsumexp`. The exponentials
    are stored for the gradient, which makes it faster too.
    """
    if not scores.shape[1]:
        return scores.sum(dim=1) - math.inf
    highest = scores.detach().amax(dim=1)
    empty = highest == -math.inf
    total = (scores - highest.masked_fill(empty, 0.0).unsqueeze(1)).exp().sum(dim=1)
    return (total + empty).log() + highest


def mean_of_valid(terms: Tensor, draw: Draw) -> Tensor:
    """The mean of terms [B, K] over each example's valid candidates: [B], zero where there are none.

    The terms of masked candidates must be zero, as those of scores that went through `masked` are.
    """
    return terms.sum(dim=1) / valid_count(draw).clamp(min=1)


def valid_count(draw: Draw) -> Tensor:
    """How many candidates of each example are valid: int32 [B]."""
    # Into int32 torch sums booleans four times as fast as into its default.
    return draw.valid.sum(dim=1, dtype=torch.int32)
