"""EASE: a linear model from items to items, in closed form."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.fitted import Baseline, Fitted, by_history
from turret.training.baselines.interactions import Interactions, Offsets, Rows
from turret.training.baselines.pair_counts import pair_counts

# Matrices of 400 MB, of which two exist at once.
MOST_ITEMS = 10_000


def ease_weights(counts: NDArray[np.float32], regularisation: float) -> Tensor:
    """B = I - P diag(1 / diag P) with P = (X'X + regularisation I)^-1, and zeros on the diagonal.

    Source: Steck 2019, "Embarrassingly shallow autoencoders for sparse data", eq. 8. `counts` is changed.

    Args:
        counts: X'X, float32 [M, M], for the binary matrix X [U, M] of users and items.
        regularisation: the weight of the squared Frobenius norm of B.

    Returns:
        float32 [M, M]; row i has the weights of item i for all others.
    """
    gram = torch.from_numpy(counts)
    gram.diagonal().add_(regularisation)
    torch.linalg.cholesky(gram, out=gram)
    # The inverse is symmetric and comes by columns; sums over histories read rows.
    precision = torch.cholesky_inverse(gram).mT.contiguous()
    precision.div_(-precision.diagonal().clone())
    precision.fill_diagonal_(0.0)
    return precision


def fit_ease(data: PreparedData, until: HistoryEnd) -> Fitted:
    """EASE on the most popular items of a large catalog; the others follow by popularity.

    The regularisation is the mean number of users of an item, the mean of diag X'X: about the 500 that
    Steck 2019 uses on MovieLens 20M. The diagonal, which he leaves empty, predicts another use of the item
    from the first, by a ridge regression too; it matters where used items are ranked.
    """
    log = Interactions.training(data)
    kept = np.sort(np.argsort(-log.item_users, kind="stable")[:MOST_ITEMS])
    regularisation = max(1.0, float(log.item_users[kept].mean()))
    weights = ease_weights(pair_counts(log.of_items(kept)), regularisation)
    own = log.item_repeaters[kept] / (log.item_users[kept] + regularisation)
    weights.diagonal().copy_(torch.from_numpy(own))
    new_rows = np.full(log.item_count, -1, dtype=np.int64)
    new_rows[kept] = np.arange(len(kept))

    def scores(offsets: Offsets, items: Rows) -> NDArray[np.float32]:
        rows = new_rows[items]
        before = np.concatenate([[0], np.cumsum(rows >= 0)])[offsets]
        known, starts = torch.from_numpy(rows[rows >= 0]), torch.from_numpy(before[:-1])
        result = torch.zeros(len(starts), log.item_count)
        summed = embedding_bag(known, weights, starts, mode="sum")
        # Raised above zero, which by_history keeps for items without a score.
        lowest = summed.min(dim=1, keepdim=True).values
        raised = (summed - lowest) + torch.finfo(torch.float32).tiny
        has_items = torch.from_numpy(np.diff(before) > 0)
        result[:, torch.from_numpy(kept)] = torch.where(has_items[:, None], raised, 0.0)
        return result.numpy()

    limits = f"the {MOST_ITEMS:,} most popular items" if len(kept) < log.item_count else ""
    return Fitted(by_history(scores, data, until), limits)


EASE = Baseline("ease", "EASE", fit_ease)
