"""From two vectors to a score."""

import torch
from torch import Tensor

from tower.config import ScoringConfig


def scored_form(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """The vectors whose inner product is scored: unit rows for the cosine, themselves for the dot product.

    Args:
        vectors: [..., D], as a tower's last layer gives them.
        scoring: the kind of score.

    Returns:
        [..., D].
    """
    if scoring.kind == "cosine":
        return torch.nn.functional.normalize(vectors, dim=-1)
    return vectors


def paired_scores(users: Tensor, items: Tensor, temperature: float) -> Tensor:
    """The score of each user vector [B, D] with its own item vector [B, D]: [B]."""
    return (users * items).sum(dim=-1) / temperature


def cross_scores(users: Tensor, items: Tensor, temperature: float) -> Tensor:
    """The scores of all user vectors [B, D] with the items [K, D], or each with its own [B, K, D]: [B, K]."""
    # Dividing the B x D vectors is cheaper than dividing the B x K scores.
    users = users / temperature
    if items.dim() == 2:
        return users @ items.T
    return torch.einsum("bd,bkd->bk", users, items)
