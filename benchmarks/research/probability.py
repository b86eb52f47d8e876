"""Botev et al. 2017, figure 1: the probability of a class, estimated from 10 to 50 of 10,000 classes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.plots import figure
from benchmarks.research.runs import PaperFigure, Result, Results, Scale
from turret.training.losses.sampled import sampled_softmax, standard_importance
from turret.training.objectives.contract import Loss
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.fixed.bernoulli import BernoulliSampler
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import PopularitySampler

CPU = torch.device("cpu")
CANDIDATES = (10, 20, 50)
STANDARD = "standard importance sampling"
COMPLEMENTARY = "complementary sum sampling"
BERNOULLI = "complementary sum sampling, Bernoulli"
Values = NDArray[np.float64]
Points = tuple[Tensor, Tensor, Tensor]
"""Scores [P, C] of points, their classes [P], and the logs of the classes' probabilities [P]."""


@dataclass(frozen=True)
class Estimates:
    """The logs of the probability of each point's class [P], and of its estimate from K candidates [P]."""

    estimator: str
    candidates: int
    log_true: Values
    log_estimated: Values

    @property
    def true(self) -> Values:
        """The probabilities."""
        return np.exp(self.log_true)

    @property
    def estimated(self) -> Values:
        """Their estimates; infinite beyond the range of a float."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_estimated)

    def figures(self) -> dict[str, float | int | str | None]:
        """How far the estimates are off, and how many are no probabilities; None for an infinite error."""
        errors = np.abs(self.estimated - self.true)
        finite = bool(np.isfinite(errors).all())
        return {
            "estimator": self.estimator,
            "candidates": self.candidates,
            "root_mean_square_error": float(np.sqrt((errors**2).mean())) if finite else None,
            # The loss of a certain class is zero up to the rounding of its logarithm.
            "share_above_one": float((self.log_estimated > 1e-6).mean()),
        }


def figure_1(points: Points, seed: int) -> list[Estimates]:
    """Every estimator at each K, on the same points."""
    weights = np.ones(points[0].shape[1])
    made = []
    for candidates in CANDIDATES:
        for name, loss, sampler in (
            (STANDARD, standard_importance, PopularitySampler(weights, candidates, CPU)),
            (COMPLEMENTARY, sampled_softmax, ComplementSampler(weights, candidates, CPU)),
            (BERNOULLI, sampled_softmax, BernoulliSampler(weights, candidates, CPU)),
        ):
            random = stream(seed, name, candidates)
            estimates = log_estimates(loss, sampler, points[0], points[1], random, name == STANDARD)
            made.append(Estimates(name, candidates, points[2].double().numpy(), estimates))
    return made


def captioned_points(class_count: int, point_count: int, random: np.random.Generator) -> Points:
    """Log weights of the caption: u_i uniform on [0, 1], and u_1 = exp(C y) with y drawn from a normal one.

    u_1 or 1 / u_1 has thousands of digits, so nothing but its logarithm C y is formed.
    """
    scores = _log_uniform(class_count, point_count, random)
    scores[:, 0] = torch.from_numpy(class_count * random.normal(size=point_count))
    return scores, torch.zeros(point_count, dtype=torch.int64), scores.log_softmax(dim=1)[:, 0]


def spread_points(class_count: int, point_count: int, random: np.random.Generator) -> Points:
    """u_i uniform on [0, 1], and u_1 = exp(C y) with the y that make the class's probability uniform."""
    scores = _log_uniform(class_count, point_count, random)
    return _with_uniform_probability(scores, random)


POINTS: dict[str, Callable[[int, int, np.random.Generator], Points]] = {
    "captioned": captioned_points,
    "captioned, y spread": spread_points,
}


def _log_uniform(class_count: int, point_count: int, random: np.random.Generator) -> Tensor:
    # 1 - u is uniform as well, and never zero.
    return torch.from_numpy(np.log(1.0 - random.uniform(size=(point_count, class_count))))


def _with_uniform_probability(scores: Tensor, random: np.random.Generator) -> Points:
    labels = torch.from_numpy(random.integers(scores.shape[1], size=len(scores)))
    true = torch.from_numpy(random.uniform(0.0, 1.0, size=len(scores)))
    others = scores.scatter(1, labels[:, None], float("-inf")).logsumexp(dim=1)
    own = others + true.log() - (-true).log1p()
    return scores.scatter(1, labels[:, None], own[:, None]), labels, true.log()


def log_estimates(
    loss: Loss,
    sampler: Sampler,
    scores: Tensor,
    labels: Tensor,
    random: np.random.Generator,
    keeps_hits: bool,
) -> Values:
    """-loss of each point [P], each with a draw of its own.

    `keeps_hits` counts a drawn class of the point itself, as an estimate of the whole sum has to.
    """
    results = []
    for score, label in zip(scores, labels, strict=True):
        query, positive = torch.zeros(1, 1), label[None]
        context = DrawContext(random, positive, query, query.__getitem__)
        draw = sampler.draw(query, positive, context)
        draw = draw.keeping_hits(positive) if keeps_hits else draw
        results.append(loss(score[label][None], score[draw.ids].reshape(1, -1), draw))
    return -torch.cat(results).double().numpy()


CLASSES, POINT_COUNT = 10_000, 200
SPREAD = "captioned, y spread"


def runs(scale: Scale) -> dict[str, partial[Result]]:
    """A run for each way to choose the scores."""
    count = POINT_COUNT // 4 if scale.quick else POINT_COUNT
    return {kind: partial(estimate, kind, count) for kind in POINTS}


def estimate(kind: str, point_count: int) -> Result:
    """All estimates of one set of points."""
    points: Points = POINTS[kind](CLASSES, point_count, stream(0, "points", 0))
    true = points[2].exp()
    return {
        "points": point_count,
        "share_undecided": float(((true > 0.01) & (true < 0.99)).double().mean()),
        "estimates": [
            {
                **one.figures(),
                "true": [round(float(value), 5) for value in one.true],
                "log10_estimated": [round(float(value) / 2.302585093, 4) for value in one.log_estimated],
            }
            for one in figure_1(points, seed=0)
        ],
    }


def plot(results: Results, path: Path) -> None:
    """The panels, for the points that cover the axis."""
    estimates = results[SPREAD]["estimates"]
    names = list(dict.fromkeys(one["estimator"] for one in estimates))
    with figure(path, (4.0 * len(names), 3.8), len(names), share_y=False) as panels:
        for panel, name in zip(panels, names, strict=True):
            mine = [one for one in estimates if one["estimator"] == name]
            for one in mine:
                estimated = [10.0**value for value in one["log10_estimated"]]
                panel.plot(one["true"], estimated, ".", markersize=3, label=f"K = {one['candidates']}")
            # Many points, as the line is not straight on a logarithmic axis.
            right = [place / 200 for place in range(1, 201)]
            panel.plot(right, right, color="black", linewidth=1)
            panel.set(title=name, xlabel="probability of the class", ylabel="its estimate")
            if any(one["share_above_one"] for one in mine):
                panel.set(yscale="log", ylabel="its estimate (logarithmic scale)")
            panel.legend(loc="upper left", fontsize="x-small")


FIGURE = PaperFigure("probability", runs, plot, "png")
