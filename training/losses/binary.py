"""Losses that classify each candidate on its own, with the arguments of `objectives.contract.Loss`.

The losses are at least zero, and equal the positive's part alone where no candidate is valid.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from turret.training.losses.loss import loss, masked, mean_of_valid, minus_log_count, valid_count
from turret.training.losses.pairwise import binary_cross_entropy_of_pairs
from turret.training.objectives.sampled import HitSettings
from turret.training.samplers.core.contract import Draw


def positive_against_others(positive: Tensor, others: Tensor) -> Tensor:
    """-log sigma of the positives [B], plus the sum of -log(1 - sigma) of masked scores [B, K]: [B].

    softplus(-s) and softplus(s) neither overflow nor round a small loss to zero, as softplus(s) - s and the
    log of a sigmoid do.
    """
    return softplus(-positive) + softplus(others).sum(dim=1)


@loss("binary_cross_entropy", pairs=binary_cross_entropy_of_pairs, needs_fixed_size=True)
def binary_cross_entropy(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """softplus(-s_y) + sum_j softplus(s_j): label 1 for the positive, 0 for each of the drawn.

    Uncorrected and with hits masked, it learns log(p_i / ((1 - p_i) K q_i)).

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> binary_cross_entropy(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([2.1333])
    """
    return positive_against_others(positive, masked(drawn, draw))


@loss("negative_sampling", HitSettings, needs_fixed_size=True)
def negative_sampling(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """softplus(-s_y) + (1/K) sum_j softplus(s_j), the mean over the valid candidates.

    The optimum is s_i = log(p_i / q_i), a ranking by the lift over q; with hits masked it is about
    log(p_i / ((1 - p_i) q_i)).

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Mikolov et al. 2013; Botev et al. 2017, eq. 28.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> negative_sampling(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([1.1301])
    """
    return softplus(-positive) + mean_of_valid(softplus(masked(drawn, draw)), draw)


class NceSettings(HitSettings):
    """Noise-contrastive estimation, in which hits count unless `remove_accidental_hits` is set.

    `learned_normaliser` subtracts a learned constant from the scores.
    """

    remove_accidental_hits: bool = False
    learned_normaliser: bool = False


@loss("nce", NceSettings, needs_probabilities=True)
def nce(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """softplus(-(s_y - l_y)) + sum_j softplus(s_j - l_j), l = log(K q): a classifier of data against noise.

    With hits valid, as both papers have it, the optimum is s_i = log p_i, and with K to infinity the gradient
    goes to that of the full softmax. With hits masked the optimum is the log odds log(p_i / (1 - p_i)).

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Gutmann & Hyvarinen 2010; Mnih & Teh 2012.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> nce(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([4.4989])
    """
    others = masked(minus_log_count(drawn, draw), draw)
    return positive_against_others(positive - draw.positive_log_count, others)


@loss("gbce", needs_fixed_size=True)
def gbce(
    positive: Tensor,
    drawn: Tensor,
    draw: Draw,
    *,
    t: Annotated[float, Field(ge=0.0, le=1.0)] = 0.75,
    item_count: int,
) -> Tensor:
    """(beta softplus(-s_y) + sum_j softplus(s_j)) / (K + 1): the positive's probability is sigma(s_y)^beta.

    beta = alpha (t (1 - 1/alpha) + 1/alpha) = 1 - t (1 - alpha), with alpha = K / (N - 1) the share of the
    negatives that was drawn and K the number of an example's valid candidates. At t = 1 sigma(s_i) goes to
    the true p_i, under uniform draws.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.
        t: how much of the overconfidence is corrected, from 0 to 1.
        item_count: N.

    Returns:
        float [B], the loss of each example.

    Source: Petrov & Macdonald 2023 (gSASRec), which normalises by K + 1 as here.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> gbce(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw, item_count=10)
        tensor([0.6864])
    """
    count = valid_count(draw).to(positive.dtype)
    # A catalog of one item has no negatives, and then K is zero too.
    rate = count / max(item_count - 1, 1)
    beta = 1.0 - t * (1.0 - rate)
    negatives = softplus(masked(drawn, draw)).sum(dim=1)
    return (beta * softplus(-positive) + negatives) / (count + 1)
