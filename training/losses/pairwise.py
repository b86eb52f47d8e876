"""Losses that compare the positive with each candidate, and losses of labelled pairs."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from turret.training.errors import TrainingError
from turret.training.losses.loss import loss, masked, mean_of_valid
from turret.training.samplers.core.contract import Draw

_DELTA = Field(ge=-1e6, le=1e6)


def cosine_embedding_of_pairs(cosines: Tensor, positive: Tensor, *, margin: float) -> Tensor:
    """1 - cos for a label of 1, and max(0, cos - margin) for the other label.

    Args:
        margin: the cosine below which a pair that does not belong together has no loss.

    Returns:
        [B], between 0 and 2.

    Source: torch `CosineEmbeddingLoss`.
    """
    return torch.where(positive, 1.0 - cosines, (cosines - margin).relu())


@loss("ranking", needs_fixed_size=True)
def ranking(
    positive: Tensor,
    drawn: Tensor,
    draw: Draw,
    *,
    delta: Annotated[float, _DELTA] | Literal["complementary_sum"] = 0.0,
    item_count: int = 0,
) -> Tensor:
    """mean_j softplus(-(s_y - s_j - delta)).

    `delta` = 0 is BPR. `delta` = log(N - 1) makes each pair the complementary sum sampling of one uniform
    candidate, log(exp s_y + (N - 1) exp s_j) - s_y. The loss is not corrected for the sampler.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.
        delta: by how much the positive should be ahead, in tempered scores; "complementary_sum" stands for
            log(N - 1).
        item_count: N, for "complementary_sum".

    Returns:
        [B], at least zero; zero where no candidate is valid.

    Source: Collobert & Weston 2008; Botev et al. 2017, eq. 25-27; Rendle et al. 2009 (BPR).

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> ranking(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.2201])
    """
    if delta == "complementary_sum":
        # A catalog of one item has no pairs, so any number will do.
        delta = math.log(max(item_count - 1, 1))
    return mean_of_valid(softplus(_behind(positive, drawn, draw, delta)), draw)


@loss("ranking_hinge", needs_fixed_size=True)
def ranking_hinge(
    positive: Tensor, drawn: Tensor, draw: Draw, *, delta: Annotated[float, _DELTA] = 1.0
) -> Tensor:
    """mean_j max(0, delta - s_y + s_j).

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.
        delta: by how much the positive should be ahead, in tempered scores.

    Returns:
        [B], at least zero; zero where no candidate is valid.

    Source: Botev et al. 2017, eq. 24; Collobert & Weston 2008.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> ranking_hinge(torch.tensor([2.0]), torch.tensor([[1.5, 0.0]]), draw)
        tensor([0.2500])
    """
    return mean_of_valid(_behind(positive, drawn, draw, delta).relu(), draw)


def _behind(positive: Tensor, drawn: Tensor, draw: Draw, delta: float) -> Tensor:
    """How far the positive is from being `delta` ahead of each candidate: [B, K], masked."""
    return masked(drawn - (positive - delta).unsqueeze(1), draw)


@loss("cosine_hinge", needs_fixed_size=True, needs_cosine=True)
def cosine_hinge(
    positive: Tensor, drawn: Tensor, draw: Draw, *, margin: Annotated[float, Field(ge=0.0, le=2.0)] = 0.5
) -> Tensor:
    """mean_j max(0, margin - cos(h, w_y) + cos(h, w_j)): `ranking_hinge` on cosines.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.
        margin: the intended difference of the cosines.

    Returns:
        [B], between 0 and margin + 2; zero where no candidate is valid.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> cosine_hinge(torch.tensor([0.8]), torch.tensor([[0.5, 0.7]]), draw)
        tensor([0.3000])
    """
    return ranking_hinge(positive, drawn, draw, delta=margin)


@loss("cosine_embedding", pairs=cosine_embedding_of_pairs, needs_fixed_size=True, needs_cosine=True)
def cosine_embedding(
    positive: Tensor, drawn: Tensor, draw: Draw, *, margin: Annotated[float, Field(ge=-1.0, lt=1.0)] = 0.0
) -> Tensor:
    """1 - cos(h, w_y) + mean_j max(0, cos(h, w_j) - margin).

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.
        margin: the cosine below which a candidate has no loss.

    Returns:
        [B], between 0 and 3 - margin; the positive's part alone where no candidate is valid.

    Source: torch `CosineEmbeddingLoss`, for one positive and the mean of its negatives.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> cosine_embedding(torch.tensor([0.8]), torch.tensor([[0.5, 0.7]]), draw)
        tensor([0.8000])
    """
    return 1.0 - positive + mean_of_valid((masked(drawn, draw) - margin).relu(), draw)


def binary_cross_entropy_of_pairs(scores: Tensor, positive: Tensor) -> Tensor:
    """softplus(-s) for a label of 1, softplus(s) for the other label: -log sigma(s), -log(1 - sigma(s)).

    Returns:
        [B], at least zero.

    Source: torch `BCEWithLogitsLoss`; with labels of -1 and +1 the logistic loss log(1 + exp(-label s)).
    """
    return softplus(torch.where(positive, -scores, scores))


def positive_labels(labels: Tensor, size: int) -> Tensor:
    """Which of `size` labels are 1: bool [B].

    Raises:
        TrainingError: another number of labels, or values that are neither 0 and 1 nor -1 and +1.
    """
    if labels.shape != (size,):
        raise TrainingError(
            f"labels have the shape {tuple(labels.shape)}; give one for each of {size} pairs."
        )
    positive = labels == 1
    rest = labels[~positive]
    if not ((rest == 0).all() or (rest == -1).all()):
        values = ", ".join(f"{value:g}" for value in torch.unique(labels)[:5].tolist())
        raise TrainingError(f"labels have the values {values}; give 0 and 1, or -1 and +1.")
    return positive
