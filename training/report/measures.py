"""Measures of a sampler: divergence of its proposal from the softmax, and error of its gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores, paired_scores
from turret.training.errors import TrainingError
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.contract import Loss
from turret.training.report.queries import Examples
from turret.training.samplers.core.draw import Draw

# Q x N scores held at once.
_MOST_SCORES = 2**22
# Unreachable probability within the rounding of q.
_NEGLIGIBLE = 1e-6


def _parts(examples: Examples, items: int) -> Iterator[slice]:
    size = max(1, _MOST_SCORES // items)
    return (slice(start, start + size) for start in range(0, len(examples), size))


def divergence(examples: Examples, vectors: Tensor, scoring: ScoringConfig, proposal: Tensor) -> float | None:
    """The mean of KL(p || q) in nats over Q queries, of the softmax p and the proposal q [Q, N].

    Both are renormalised without the example's positive, whose term is exact. None if items with q = 0 have
    more than a millionth of p.
    """
    sums = torch.zeros(2, dtype=torch.float64)
    for part in _parts(examples, len(vectors)):
        given = examples.take(part)
        own = given.positives.unsqueeze(1)
        scores = cross_scores(given.users, vectors, scoring).double().scatter(1, own, float("-inf"))
        log_p = scores.log_softmax(dim=1)
        p = log_p.exp()
        q = proposal[part].double().scatter(1, own, 0.0)
        q = q / q.sum(dim=1, keepdim=True)
        drawn = (q > 0) & (p > 0)
        log_ratio = torch.where(drawn, log_p - q.clamp_min(1e-300).log(), 0.0)
        sums += torch.stack([(p * log_ratio).sum(), p[q == 0].sum()]).cpu()
    kl, unreachable = (sums / len(examples)).tolist()
    return None if unreachable >= _NEGLIGIBLE else kl


@dataclass(frozen=True)
class GradientError:
    """Errors of the gradient with respect to the user vectors, relative to the norm of the full gradient.

    With g_b the full gradient of example b and E_b the expectation of the sampled one, `bias` is
    sqrt(sum_b |E_b - g_b|^2 / sum_b |g_b|^2), and `bias_low` and `bias_high` are two standard errors from
    it. `variance` is sum_b E|sampled_b - E_b|^2 / sum_b |g_b|^2. `effective_share` is the effective sample
    size (sum w)^2 / sum w^2 of the weights w_j = exp(s_j - l_j), as a share of the candidates drawn.
    """

    bias: float
    bias_low: float
    bias_high: float
    variance: float
    effective_share: float
    candidates: float


def full_gradient(examples: Examples, vectors: Tensor, scoring: ScoringConfig) -> Tensor:
    """The gradient of each example's full softmax with respect to its user vector: [Q, D]."""
    users = examples.users.detach().requires_grad_()
    parts = []
    for part in _parts(examples, len(vectors)):
        losses = full_softmax(cross_scores(users[part], vectors, scoring), examples.positives[part])
        parts.append(torch.autograd.grad(losses.sum(), users)[0][part])
    return torch.cat(parts)


def sampled_gradient(
    examples: Examples, vectors: Tensor, scoring: ScoringConfig, draw: Draw, loss: Loss = sampled_softmax
) -> tuple[Tensor, Tensor]:
    """The gradient of the loss over `draw` [Q, D], and the effective share [Q]."""
    users = examples.users.detach().requires_grad_()
    drawn = cross_scores(users, vectors[draw.ids], scoring)
    losses = loss(paired_scores(users, vectors[examples.positives], scoring), drawn, draw)
    gradient = torch.autograd.grad(losses.sum(), users)[0]
    return gradient, effective_share(drawn.detach(), draw)


def effective_share(drawn: Tensor, draw: Draw) -> Tensor:
    """(sum w)^2 / sum w^2 / K of w_j = exp(s_j - l_j) over valid candidates, 0 without any: [Q]."""
    log_weights = (drawn - draw.log_count).masked_fill(~draw.valid, float("-inf"))
    log_share = 2.0 * log_weights.logsumexp(dim=1) - (2.0 * log_weights).logsumexp(dim=1)
    return log_share.exp().nan_to_num(0.0) / max(1, drawn.shape[1])


def gradient_error(
    examples: Examples,
    vectors: Tensor,
    scoring: ScoringConfig,
    draw_once: Callable[[int], Draw],
    draws: int,
    loss: Loss = sampled_softmax,
) -> GradientError:
    """Compare the gradients of `draws` independent draws with the full gradient.

    The squared bias is the mean of <G_r - g, G_t - g> over pairs of *different* draws r and t, which excludes
    the variance of the draws; its standard error is the jackknife's over the draws, at least 3.

    Raises:
        TrainingError: the full gradient is zero.
    """
    exact = full_gradient(examples, vectors, scoring)
    length = float(exact.double().square().sum())
    if length == 0.0:
        raise TrainingError(
            f"the full softmax has a zero gradient for all {len(examples.positives)} queries, so errors "
            "relative to it are undefined; raise --queries or tower.scoring.temperature."
        )
    deviations, share, candidates = [], 0.0, 0
    for number in range(draws):
        draw = draw_once(number)
        gradient, shares = sampled_gradient(examples, vectors, scoring, draw, loss)
        deviations.append((gradient - exact).flatten().cpu())
        share += float(shares.mean())
        candidates += draw.ids.shape[-1]
    each = torch.stack(deviations).double()
    products = each @ each.T
    mean_square = float(products.trace()) / draws
    products.fill_diagonal_(0.0)
    squared = float(products.sum()) / (draws * (draws - 1))
    # The jackknife: the same mean without each draw in turn.
    without = (products.sum() - 2.0 * products.sum(dim=1)) / ((draws - 1) * (draws - 2))
    error = float((without - without.mean()).square().sum() * (draws - 1) / draws) ** 0.5
    return GradientError(
        bias=_root(squared / length),
        bias_low=_root((squared - 2.0 * error) / length),
        bias_high=_root((squared + 2.0 * error) / length),
        variance=max(0.0, mean_square - squared) / length,
        effective_share=share / draws,
        candidates=candidates / draws,
    )


def _root(value: float) -> float:
    return float(max(0.0, value) ** 0.5)
