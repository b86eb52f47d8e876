"""Factors of the pairs of items of a log, with which item vectors begin or which go beside them."""

import numpy as np
import torch
from torch import Tensor

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.baselines.interactions import Interactions
from turret.training.baselines.pair_models import popular_counts

REGULARIZATION = 20.0
_OVERSAMPLING, _ITERATIONS = 60, 4


@torch.no_grad()
def pair_factors(data: PreparedData, width: int, since: float = -np.inf) -> Tensor:
    """Factors [N, K] whose products are the partial correlations of items in training histories or baskets.

    For the precision P = (X'X + regularization I)^-1 of histories X, the correlation of items i and j given
    all others is -P_ij / sqrt(P_ii P_jj): the weight of i for j in EASE, but for a factor of each item. The
    products of the K columns are its nearest ones but for the diagonal, which no history without its target
    reads; a diagonal of 1 leaves most of the columns positive. Beyond the most popular items of EASE, and
    with fewer factors than columns, factors are zero. Events before `since` are left out.

    Sources: Steck 2019, eq. 8; Halko et al. 2011, "Finding structure with randomness", for the factors.
    """
    kept, counts = popular_counts(Interactions.training(data, since))
    gram = torch.from_numpy(counts)
    gram.diagonal().add_(REGULARIZATION)
    precision = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    scales = precision.diagonal().rsqrt()
    correlations = -precision * scales[:, None] * scales
    correlations.diagonal().fill_(1.0)
    most = min(width + _OVERSAMPLING, len(correlations))
    left, values, right = torch.svd_lowrank(correlations, q=most, niter=_ITERATIONS)
    positive = ((left * right).sum(dim=0) > 0).nonzero().flatten()[:width]
    factors = torch.zeros(len(data.item_ids), width)
    factors[torch.from_numpy(kept)[:, None], torch.arange(len(positive))] = (
        left[:, positive] * values[positive].sqrt()
    )
    return factors


@torch.no_grad()
def begin_as_pairs(model: TwoTowers, data: PreparedData) -> None:
    """Let the products of item vectors begin as those of `pair_factors`; biases begin at zero."""
    assert model.item.table is not None
    table = model.item.table.weight
    width = model.config.dimension - model.config.scoring.item_bias
    table.zero_()
    table[:, :width] = pair_factors(data, width)
