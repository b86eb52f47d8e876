"""The gradient of -log p_y with an unbiased 1 / Z (Booth 2007, which Botev et al. 2017 mention).

    d(-log p_y) = (1 / Z) dZ - ds_y

With independent unbiased estimates Z_0, Z_1, ... of Z and any w < 2 / Z, 1 / Z = w sum_n (1 - w Z)^n, and

    R = w sum_{n <= T} prod_{i <= n} (1 - w Z_i) / p^n,   P(T >= n) = p^n (Russian roulette)

has the mean 1 / Z, so that R dZ_1' with another estimate Z_1' has the gradient's mean, which that of the
sampled softmax, d log Z_1, has not. Its variance is finite only if E(1 - w Z_1)^2 < p, with w = 1 / Z if the
relative variance of an estimate is below p. w has to be known: here it is 1 / Z itself, or 1 / Z_0. The
second is random, and where Z_0 < Z / 2 the series diverges and there is no mean.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.research.complementary_sum import Estimator, Optimiser, Problem, train
from turret.tower.towers.scoring import cross_scores
from turret.training.losses.sampled import sampled_softmax
from turret.training.losses.terms import log_sum_exp, masked, minus_log_count
from turret.training.report.gradients import GradientError, gradient_error
from turret.training.report.measured import Entry
from turret.training.report.queries import drawer
from turret.training.report.samplers import SamplerReport
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.core.settings import SamplerContext
from turret.training.samplers.fixed.popularity import PopularitySampler, UniformConfig, UnigramConfig
from turret.training.samplers.fixed.weights import Weights
from turret.training.samplers.kernel.quadratic import QuadraticConfig
from turret.training.statistics import PreparedStatistics

SIZES, SURVIVAL = (64, 512), 2.0 / 3.0
# With the survival, two estimates on average, beside those of w and of dZ: K candidates in four parts.
PARTS = 4
SEEDS = (0, 1, 2)
# Candidates and learning rate.
TRAININGS = ((20, 0.3), (20, 0.03), (200, 0.03))
Sized = Callable[[int], Sampler]


class Roulette(Sampler):
    """Candidates of several independent estimates of Z: of 1 / Z as many as the roulette goes on for."""

    def __init__(self, sized: Sized, each: int, survival: float) -> None:
        """Take `sized`, which makes a sampler of K candidates, and K = `each` of one estimate."""
        self.sized, self.each, self.survival = sized, each, survival

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Candidates of 2 + T estimates, one after the other."""
        estimates = 2 + int(context.random.geometric(1.0 - self.survival)) - 1
        return self.sized(self.each * estimates).draw(query, positives, context)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """That of the sampler."""
        return self.sized(self.each).probability(query, context)


def reciprocal_softmax(
    positive: Tensor,
    drawn: Tensor,
    draw: Draw,
    each: int,
    survival: float,
    log_z: Tensor | None = None,
) -> Tensor:
    """A loss whose gradient is R dZ_1' - ds_y: [B]; its value means nothing.

    w = 1 / Z_0, or exp(-log_z) with `log_z` [B].
    """
    estimates = log_estimates(positive, drawn, draw, each)
    known = estimates.detach()
    log_w = -known[:, :1] if log_z is None else -log_z.unsqueeze(1)
    factors = (1.0 - (known[:, 2:] + log_w).exp()) / survival
    series = 1.0 + factors.cumprod(dim=1).sum(dim=1)
    return series * (estimates[:, 1] + log_w[:, 0]).exp() - positive


def log_estimates(positive: Tensor, drawn: Tensor, draw: Draw, each: int) -> Tensor:
    """The logs [B, G] of estimates of Z, exp s_y + sum_j exp(s_j - l_j) over `each` candidates."""
    groups = drawn.shape[1] // each
    corrected = masked(minus_log_count(drawn, draw) + math.log(groups), draw)
    sums = log_sum_exp(corrected.reshape(-1, each)).view(len(drawn), groups)
    return torch.logaddexp(sums, positive.unsqueeze(1))


@dataclass(frozen=True)
class Moments:
    """Log Z of each query [Q], and the relative variance of an estimate of Z from K candidates [Q]."""

    log_z: Tensor
    variance: Tensor

    @classmethod
    def of(cls, scores: Tensor, positives: Tensor, q: Tensor, candidates: int) -> "Moments":
        """(sum over others of u^2 / q - (sum of u)^2) / K / Z^2, of scores and proposals [Q, N]."""
        scores, q = scores.double(), q.double()
        log_z = scores.logsumexp(dim=1)
        shares = (scores - log_z.unsqueeze(1)).exp().scatter(1, positives.unsqueeze(1), 0.0)
        second = (shares.square() / q).sum(dim=1)
        return cls(log_z, (second - shares.sum(dim=1).square()) / candidates)

    def infinite(self, wz: Tensor, survival: float) -> float:
        """The share of w Z [..., Q] for which R has no finite variance: E(1 - w Z_1)^2 >= p."""
        second = (1.0 - wz) ** 2 + wz**2 * self.variance
        return float((second >= survival).double().mean())


def proposals(report: SamplerReport) -> Iterator[tuple[str, Sized]]:
    """Proposals by name, with samplers of any size over the report's item vectors."""
    context = SamplerContext(PreparedStatistics(report.data), report.scoring, 0, report.device)
    kinds = {"uniform": UniformConfig(), "unigram": UnigramConfig(alpha=1.0), "quadratic": QuadraticConfig()}
    for name, config in kinds.items():
        sampler = config.build(context)
        sampler.refresh(report.queries.vectors)
        yield name, partial(resized, sampler)


def resized(sampler: Any, candidates: int) -> Sampler:
    """The sampler with another number of candidates."""
    sampler.negatives = candidates
    made: Sampler = sampler
    return made


def one_proposal(report: SamplerReport, name: str, sized: Sized, size: int) -> dict[str, Any]:
    """Errors of the sampled softmax and of both reciprocals with the same expected number of candidates."""
    queries, draws = report.queries, report.request.draws
    examples, vectors, scoring = queries.examples, queries.vectors, report.scoring
    each, entry = size // PARTS, Entry(f"reciprocal {name} {size}", size, UniformConfig())
    scores = cross_scores(examples.users, vectors, scoring)
    q = sized(each).probability(examples.users, queries.context(examples, np.random.default_rng(0)))
    moments = Moments.of(scores, examples.positives, q, each)
    roulette = Roulette(sized, each, SURVIVAL)
    drawn_w = partial(reciprocal_softmax, each=each, survival=SURVIVAL)
    known_w = partial(drawn_w, log_z=moments.log_z.float())
    plain = gradient_error(examples, vectors, scoring, drawer(entry, sized(size), queries), draws)
    errors = {"sampled softmax": finite(plain)}
    for label, loss in (("w = 1 / Z", known_w), ("w = 1 / Z_0", drawn_w)):
        draw_once = drawer(entry, roulette, queries)
        errors[label] = finite(gradient_error(examples, vectors, scoring, draw_once, draws, loss))
    pilots = torch.stack([pilot(report, sized(each), scores, number) for number in range(draws)])
    wz = (moments.log_z - pilots).exp()
    return {
        "proposal": name,
        "candidates": size,
        "errors": errors,
        "median_relative_variance": float(moments.variance.median()),
        "infinite_variance": {
            "w = 1 / Z": moments.infinite(torch.ones_like(moments.log_z), SURVIVAL),
            "w = 1 / Z_0": moments.infinite(wz, SURVIVAL),
        },
        "no_mean": float((wz >= 2.0).double().mean()),
    }


def finite(error: GradientError) -> dict[str, float | None]:
    """The figures; None for all where a gradient overflows, which makes the variance not a number or zero."""
    known = math.isfinite(error.variance) and error.variance > 0.0
    return {name: value if known else None for name, value in asdict(error).items()}


def pilot(report: SamplerReport, sampler: Sampler, scores: Tensor, number: int) -> Tensor:
    """log Z_0 of each query [Q]."""
    examples = report.queries.examples
    context = report.queries.context(examples, np.random.default_rng(number))
    draw = sampler.draw(examples.users, examples.positives, context)
    ids = draw.ids.expand(len(scores), -1)
    positive = scores.gather(1, examples.positives.unsqueeze(1))[:, 0]
    return log_estimates(positive, scores.gather(1, ids), draw, ids.shape[1])[:, 0].double()


def reciprocals(report: SamplerReport) -> list[dict[str, Any]]:
    """Every proposal at every size."""
    return [one_proposal(report, name, sized, size) for name, sized in proposals(report) for size in SIZES]


def regression(epochs: int) -> list[dict[str, Any]]:
    """Log likelihoods of a point after training as in figure 2(a) of Botev et al.; None for not a number."""
    rows = []
    for candidates, rate in TRAININGS:
        problem = Problem(epochs=epochs, candidates=candidates)
        each = candidates // PARTS
        estimators = {
            "exact": None,
            "sampled softmax": Estimator(sampled_softmax, PopularitySampler),
            "unbiased 1 / Z": Estimator(
                partial(reciprocal_softmax, each=each, survival=SURVIVAL), partial(roulette_of, each)
            ),
        }
        for name, estimator in estimators.items():
            ends = [train(problem, estimator, seed, Optimiser(rate, 0.9))[-1] for seed in SEEDS]
            finite = [end if math.isfinite(end) else None for end in ends]
            rows.append({"candidates": candidates, "rate": rate, "estimator": name, "ends": finite})
    return rows


def roulette_of(each: int, weights: Weights, candidates: int, device: torch.device) -> Sampler:
    """Estimates of `each` candidates, about four, drawn by the weights."""
    return Roulette(partial(PopularitySampler, weights, device=device), each, SURVIVAL)
