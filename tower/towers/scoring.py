"""From two vectors to a score."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from turret.tower.config import ScoringConfig
from turret.tower.kernels.elementwise import Normalize
from turret.tower.layers.packed import step_at


def scored_items(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """Item vectors [..., D] whose inner product with `scored_users` is scored.

    They are unit rows for the cosine, and unchanged for the dot product. With `item_bias` the last column is
    the bias, times the temperature that a score will be divided by, and the cosine is of the other columns.
    """
    return _scored(vectors, vectors[..., -1:] * scoring.temperature if scoring.item_bias else None, scoring)


def scored_users(vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """User vectors [..., D] whose inner product with `scored_items` is scored.

    They are unit rows for the cosine, and unchanged for the dot product. With `item_bias` the last column is
    1 in place of the tower's output: an item's bias counts once.
    """
    return _scored(vectors, torch.ones_like(vectors[..., -1:]) if scoring.item_bias else None, scoring)


def _scored(vectors: Tensor, last: Tensor | None, scoring: ScoringConfig) -> Tensor:
    """Vectors as the scoring needs them, with the column `last`, if there is one, in place of the last."""
    directions = vectors if last is None else vectors[..., :-1]
    if scoring.kind == "cosine" and torch.compiler.is_exporting():
        directions = normalize(directions, dim=-1)  # ONNX has no form of our own function
    elif scoring.kind == "cosine":
        directions = Normalize.apply(directions)  # type: ignore[no-untyped-call] # torch annotates neither
    return directions if last is None else torch.cat([directions, last], dim=-1)


def paired_scores(users: Tensor, items: Tensor, scoring: ScoringConfig) -> Tensor:
    """The score of each user vector [..., D] with its own item vector [..., D]: [...]."""
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


def fitting_vectors(
    interests: Tensor, items: Tensor, scoring: ScoringConfig, power: float | None = None
) -> Tensor:
    """The vector [B, D] of `interests` [B, I, D] that trains each example, by the target of `items` [B, D].

    Without a power it is the interest with the highest score s_i of the target, which alone gets a gradient
    (Cen et al. 2020, section 3.2). With a power p it is the mean of all under the weights softmax(s_i^p), the
    label-aware attention of Li et al. 2019; the power of a negative score keeps its sign.
    """
    scores = paired_scores(interests, items.unsqueeze(1), scoring)
    if power is None:
        return step_at(interests, scores.argmax(dim=1))
    weights = (scores.sign() * scores.abs() ** power).softmax(dim=1)
    mixed: Tensor = torch.einsum("bi,bid->bd", weights, interests)
    return mixed


def best_scores(scores: Tensor) -> Tensor:
    """The best of the scores [I, U, N] by each interest: [U, N], in the memory of the first ones."""
    best = scores[0]
    for other in scores[1:]:
        torch.maximum(best, other, out=best)
    return best


def signed_or_absolute(scores: Tensor, scoring: ScoringConfig) -> Tensor:
    """Scores [...] as they are, or without their sign where the scoring says so."""
    return scores.abs() if scoring.absolute else scores
