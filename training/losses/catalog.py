"""Losses over the scores of the whole catalog."""

import math
from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from turret.training.losses.loss import loss
from turret.training.objectives.catalog import CatalogLossSettings


@loss("full_softmax", CatalogLossSettings, blocked=True)
def full_softmax(scores: Tensor, positives: Tensor) -> Tensor:
    """log sum_i exp s_i - s_y over the whole catalog.

    Affordable up to about 100,000 items; beyond that, draw.

    Args:
        scores: [B, N] tempered scores.
        positives: int64 [B], the rows of the positives.

    Returns:
        [B], at least zero.
    """
    return cross_entropy(scores, positives, reduction="none")


@loss("spherical_softmax", CatalogLossSettings, needs_absolute=True)
def spherical_softmax(
    scores: Tensor, positives: Tensor, *, epsilon: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
) -> Tensor:
    """-log p_y with p_i = (s_i^2 + epsilon) / sum_k (s_k^2 + epsilon), over the whole catalog.

    A score counts the same with either sign, so items must be ranked by its absolute value. Tails are much
    heavier than the softmax's: for a loss of log 2 the positive's squared score has to be as large as those
    of all other items together, whose sum grows with N; on a large catalog that takes large scores.

    Args:
        scores: [B, N] tempered scores; minus infinity for a masked item.
        positives: int64 [B], the rows of the positives.
        epsilon: above zero; the weight of an item of score zero.

    Returns:
        [B], at least zero.

    Source: Vincent et al. 2015; de Brebisson & Vincent 2016.
    """
    hidden = scores == -math.inf
    # The first fill keeps the square and its gradient finite; the second removes the weight.
    weights = (scores.masked_fill(hidden, 0.0).square() + epsilon).masked_fill(hidden, 0.0)
    return weights.sum(dim=1).log() - weights.gather(1, positives.unsqueeze(1))[:, 0].log()
