"""The agreement of complements, which go with an item in a basket, and substitutes, which are like it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.evaluation.ranking import USERS_A_BLOCK, scores_by_vectors
from turret.training.evaluation.top_rows import top_rows


@torch.no_grad()
def similar_in_basket(model: TwoTowers, k: int) -> dict[str, Any]:
    """How many of the k items most similar to an item are among the k that complete a basket of that item.

    Similar items are those of `POST /v1/items/{id}/similar`: the products of item vectors, without biases.

    Returns:
        `k`, at most the other items; `items`, the number of items asked about; and the mean `share`.
    """
    model.eval()
    items, scoring = model.catalog_vectors(), model.config.scoring
    alone = items.clone()
    if scoring.item_bias:
        alone[:, -1] = 0.0
    count, agreed = len(items), 0
    k = min(k, count - 1)
    for rows in torch.split(torch.arange(count, device=items.device), USERS_A_BLOCK):
        users = model.user_vectors(_baskets_of(rows), items[rows])
        complements, substitutes = (
            _best(scores_by_vectors(vectors, others, scoring), rows, k)
            for vectors, others in ((users, items), (alone[rows], alone))
        )
        agreed += int(np.isin(substitutes + count * _places(rows), complements + count * _places(rows)).sum())
    return {"k": k, "items": count, "share": agreed / (count * k)}


def _baskets_of(rows: Tensor) -> PackedHistories:
    """A basket of each of `rows` [B] alone."""
    places = torch.arange(len(rows), device=rows.device)
    return PackedHistories(
        rows, places, places + 1, torch.zeros_like(places), torch.zeros(len(rows)).to(rows.device)
    )


def _best(scores: Tensor, rows: Tensor, k: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The best k items [B, k] of `scores` [B, N] but for the items `rows` [B] themselves."""
    scores[torch.arange(len(rows), device=rows.device), rows] = float("-inf")
    return top_rows(scores.cpu(), k).numpy()


def _places(rows: Tensor) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(len(rows))[:, None]
