"""Softmax losses over a draw, with the arguments of `objectives.contract.Loss`; see docs/estimators.md.

A loss is at least zero unless its docstring says otherwise, and exactly zero where no candidate is valid.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from turret.training.losses.loss import log_sum_exp, loss, masked, minus_log_count
from turret.training.objectives.sampled import HitSettings
from turret.training.samplers.core.contract import Draw


@loss("sampled_softmax", blocked=True, other_positives="kept")
def sampled_softmax(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """log(exp s_y + sum_j exp(s_j - l_j)) - s_y.

    The sum over the draw estimates the softmax's other terms without bias, because the positive is
    kept exactly and masked among the drawn. With the whole catalog as the draw (l = 0) this *is* the
    full softmax. The loss is wrong with counts that are not those of the draw: a temperature applied
    afterwards or a floor under q bends the long tail.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Blanc & Rendle 2018, eq. 2-3; Bengio & Senecal 2008; Botev et al. 2017, eq. 7-9 and 16-19.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> sampled_softmax(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([1.2574])
    """
    others = masked(minus_log_count(drawn, draw), draw)
    return softplus(log_sum_exp(others) - positive)


@loss(
    "sampled_softmax_corrected",
    HitSettings,
    blocked=True,
    needs_probabilities=True,
    other_positives="corrected",
)
def sampled_softmax_corrected(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """`sampled_softmax` with s_y - l_y in place of s_y: the positive is corrected as the candidates are.

    With hits removed, the gradient stays away from the full softmax's at any number of candidates.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Yi et al. 2019, eq. 5; TensorFlow `sampled_softmax_loss`.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> sampled_softmax_corrected(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.4076])
    """
    return sampled_softmax(positive - draw.positive_log_count, drawn, draw)


@loss("top_k_off_policy", needs_propensities=True, other_positives="kept")
def top_k_off_policy(
    positive: Tensor,
    drawn: Tensor,
    draw: Draw,
    *,
    k: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 10,
    clip: Annotated[float, Field(gt=0.0, le=1e6)] = 20.0,
) -> Tensor:
    """-w log P_y, w = min(P_y / p, clip) k (1 - P_y)^(k - 1), with no gradient through the weight w.

    P_y is the positive's probability under the softmax, of which -log P_y is the `sampled_softmax`, and p the
    propensity with which the logged answer showed the item. A sum of the losses, weighted by rewards, has the
    gradient of the expected reward of k items that the model would draw from P, estimated from the answers of
    other versions. Examples that no answer led to have an importance weight P_y / p of 1. The value says
    little: it falls where P_y falls to zero, too. An item that the answers could not show has no examples.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts, and the propensities.
        k: the number of items of an answer; 1 is the plain correction.
        clip: the greatest importance weight, which bounds the variance at the price of a bias.

    Returns:
        float [B], the loss of each example.

    Source: Chen et al. 2019, eq. 2-4 and section 4.3; clipped as in section 4.4.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> top_k_off_policy(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw, k=2)
        tensor([1.7995])
    """
    losses = sampled_softmax(positive, drawn, draw)
    minus_log = losses.detach()
    weights = k * (-torch.expm1(-minus_log)) ** (k - 1)
    if draw.propensities is not None:
        importance = ((-minus_log).exp() / draw.propensities).clamp(max=clip)
        weights = weights * importance.nan_to_num(nan=1.0)
    return weights.to(losses.dtype) * losses


@loss("subset_softmax", other_positives="kept")
def subset_softmax(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """log(exp s_y + sum_j exp s_j) - s_y: the softmax over the positive and the drawn, uncorrected.

    With the uniform sampler, whose correction cancels, it is `sampled_softmax_corrected`. Even then log Z is
    too small by the mass outside the subset, so the loss can't be compared with the full softmax.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Jean et al. 2015; compared in Botev et al. 2017, section 6.2.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> subset_softmax(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.4076])
    """
    return softplus(log_sum_exp(masked(drawn, draw)) - positive)


@loss("refined_logq", other_positives="kept")
def refined_logq(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """(1 - P_y) (log sum_j exp(s_j - l_j) - s_y), with no gradient through the weight 1 - P_y.

    P_y = exp s_y / (exp s_y + sum_j exp(s_j - l_j)) is the positive's share, itself uncorrected because it
    is there with probability one. The gradient is that of `sampled_softmax` for any draw; the value is not,
    and has either sign. The positive must be masked in the draw.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Khrylchenko et al. 2025 (arXiv 2507.09331).

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> refined_logq(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.6603])
    """
    log_odds = log_sum_exp(masked(minus_log_count(drawn, draw), draw)) - positive
    log_odds = log_odds.masked_fill(log_odds == -math.inf, 0.0)
    return log_odds.detach().sigmoid() * log_odds


@loss("standard_importance", keeps_hits=True, needs_fixed_size=True)
def standard_importance(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """log((1/K) sum_j exp(s_j) / q_j) - s_y = log sum_j exp(s_j - l_j) - s_y.

    The draw estimates all of Z, so a drawn positive has to count (the objective keeps it), and without it the
    loss falls without bound below zero.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Botev et al. 2017, eq. 11-13; Bengio & Senecal 2008.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> standard_importance(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.9227])
    """
    log_ratio = log_sum_exp(masked(minus_log_count(drawn, draw), draw)) - positive
    return log_ratio.masked_fill(log_ratio == -math.inf, 0.0)


# An example is computed from logarithms if a candidate's share is this far ahead of the positive's, so that
# 1 - p_j has lost more than four digits in float32, or if the positive's is nearly too small for a float.
_FAR_AHEAD = 0.998
_SMALL_SHARE = 1e-30


@loss("blackout", HitSettings, needs_probabilities=True, needs_fixed_size=True)
def blackout(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """-log p_y - sum_j log(1 - p_j), p the softmax over the positive and the drawn of s - l.

    exp(s)/q and exp(s - log(K q)) have the same shares, so the expected counts serve as they are.

    Args:
        positive: float [B], the scores s_y of the positives.
        drawn: float [B, K], the scores s_j of the candidates.
        draw: the candidates, with l_j, the logs of their expected counts.

    Returns:
        float [B], the loss of each example.

    Source: Ji et al. 2016; Botev et al. 2017, eq. 29-30.

    Example, with two of ten items drawn evenly:

        >>> ids, log_q, positives = torch.tensor([3, 7]), torch.full((10,), -2.3026), torch.tensor([5])
        >>> draw = drawn_with_replacement(ids, log_q, positives)
        >>> blackout(torch.tensor([2.0]), torch.tensor([[1.0, 0.0]]), draw)
        tensor([0.7826])
    """
    others = masked(minus_log_count(drawn, draw), draw)
    corrected = torch.cat([(positive - draw.positive_log_count).unsqueeze(1), others], dim=1)
    shares = corrected.softmax(dim=1)
    of_positive = shares.detach()[:, 0]
    ahead = shares.detach().amax(dim=1) - of_positive
    if not ((ahead > _FAR_AHEAD).any() or (of_positive < _SMALL_SHARE).any()):
        return _from_shares(shares)
    rows = ((ahead > _FAR_AHEAD) | (of_positive < _SMALL_SHARE)).nonzero()[:, 0]
    # These rows are filled with a constant, so that all gradients through the shares are finite.
    plain = _from_shares(shares.index_fill(0, rows, 0.5))
    return plain.index_copy(0, rows, _from_logarithms(corrected[rows]))


def _from_shares(shares: Tensor) -> Tensor:
    return -shares[:, 0].log() - torch.log1p(-shares[:, 1:]).sum(dim=1)


def _from_logarithms(corrected: Tensor) -> Tensor:
    """`_from_shares` by the scores [B, 1 + K], exact where the largest candidate has nearly all of the mass.

    With R the sum without the largest candidate, its log(1 - p) is -softplus(its score - log R), and all
    other candidates have shares of at most one half.
    """
    largest, position = corrected[:, 1:].max(dim=1, keepdim=True)
    rest = corrected.scatter(1, position + 1, float("-inf"))
    log_rest = rest.logsumexp(dim=1, keepdim=True)
    spared = -softplus(largest - log_rest)
    log_total = log_rest - spared
    shares = (rest[:, 1:] - log_total).exp()
    return (log_total - corrected[:, :1] - spared)[:, 0] - torch.log1p(-shares).sum(dim=1)
