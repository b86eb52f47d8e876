"""From two vectors to a score."""

import torch
from torch import Tensor

from tower.config import ScoringConfig
from tower.unit import unit


def scored_form(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """The vectors whose inner product is scored: unit rows for the cosine, themselves for the dot product.

    Args:
        vectors: [..., D], as a tower's last layer gives them.
        scoring: the kind of score.

    Returns:
        [..., D].
    """
    if scoring.kind == "cosine":
        return unit(vectors)
    return vectors


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
    """The scores [U, N] of user vectors [U, D] with the catalogue [N, D], by the service's own arithmetic."""
    return signed_or_absolute((users / scoring.temperature) @ items.T, scoring)


def signed_or_absolute(scores: Tensor, scoring: ScoringConfig) -> Tensor:
    """Scores [...] as they are, or without their sign where the scoring says so."""
    return scores.abs() if scoring.absolute else scores
