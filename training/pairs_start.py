"""Item vectors that begin as factors of the pairs of items in baskets: `training.start = "pairs"`."""

import torch

from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.training.baselines.interactions import Interactions
from turret.training.baselines.pair_models import popular_counts

REGULARIZATION = 20.0
_OVERSAMPLING, _ITERATIONS = 60, 4


@torch.no_grad()
def begin_as_pairs(model: TwoTowers, data: PreparedData) -> None:
    """Let the products of item vectors begin as the partial correlations of items in the training baskets.

    For the precision P = (X'X + regularization I)^-1 of baskets X, the correlation of items i and j given all
    others is -P_ij / sqrt(P_ii P_jj): the weight of i for j in EASE, but for a factor of each item. The
    products of the D columns, one less with `item_bias`, are its nearest ones but for the diagonal, which no
    basket without its target reads; a diagonal of 1 leaves most of the columns positive. Beyond the most
    popular items of EASE, and with fewer factors than columns, vectors begin at zero; so do biases.

    Sources: Steck 2019, eq. 8; Halko et al. 2011, "Finding structure with randomness", for the factors.
    """
    assert model.item.table is not None
    table = model.item.table.weight
    width = model.config.dimension - model.config.scoring.item_bias
    kept, counts = popular_counts(Interactions.training(data))
    gram = torch.from_numpy(counts)
    gram.diagonal().add_(REGULARIZATION)
    precision = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    scales = precision.diagonal().rsqrt()
    correlations = -precision * scales[:, None] * scales
    correlations.diagonal().fill_(1.0)
    most = min(width + _OVERSAMPLING, len(correlations))
    left, values, right = torch.svd_lowrank(correlations, q=most, niter=_ITERATIONS)
    positive = ((left * right).sum(dim=0) > 0).nonzero().flatten()[:width]
    table.zero_()
    table[torch.from_numpy(kept)[:, None], torch.arange(len(positive))] = (
        left[:, positive] * values[positive].sqrt()
    ).to(table)
