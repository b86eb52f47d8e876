"""From two vectors to a score."""

import torch
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.tower.kernels.elementwise import normalized


def scored_items(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """Item vectors whose inner product with `scored_users` is scored.

    Unit rows for the cosine, themselves for the dot product. With `item_bias` the last column is the bias,
    times the temperature that a score will be divided by, and the cosine is of the others.

    Args:
        vectors: [..., D], as a tower's last layer gives them.
        scoring: the kind of score.

    Returns:
        [..., D].
    """
    if not scoring.item_bias:
        return _directed(vectors, scoring)
    directions = _directed(vectors[..., :-1], scoring)
    return torch.cat([directions, vectors[..., -1:] * scoring.temperature], dim=-1)


def scored_users(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """User vectors [..., D] whose inner product with `scored_items` is scored.

    Unit rows for the cosine, themselves for the dot product. With `item_bias` the last column is 1, whatever
    a tower gives there: an item's bias counts once.
    """
    if not scoring.item_bias:
        return _directed(vectors, scoring)
    directions = _directed(vectors[..., :-1], scoring)
    return torch.cat([directions, torch.ones_like(vectors[..., -1:])], dim=-1)


def _directed(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    return normalized(vectors) if scoring.kind == "cosine" else vectors


def paired_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The score of each user vector [B, D] with its own item vector [B, D]: [B]."""
    return signed_or_absolute((users * items).sum(dim=-1) / scoring.temperature, scoring)


def cross_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The scores of all user vectors [B, D] with the items [K, D], or each with its own [B, K, D]: [B, K]."""
    # Dividing the B x D vectors is cheaper than dividing the B x K scores.
    users = users / scoring.temperature
    products = users @ items.T if items.dim() == 2 else torch.einsum("bd,bkd->bk", users, items)
    return signed_or_absolute(products, scoring)


def served_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The scores [U, N] of user vectors [U, D] with the catalog [N, D], by the service's own arithmetic."""
    return signed_or_absolute((users / scoring.temperature) @ items.T, scoring)


def signed_or_absolute(scores: Tensor, scoring: ScoringConfig) -> Tensor:
    """Scores [...] as they are, or without their sign where the scoring says so."""
    return scores.abs() if scoring.absolute else scores
