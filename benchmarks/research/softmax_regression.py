"""Botev et al. 2017, figures 2(a) and 2(b): a softmax regression by each estimator, and by rankings.

Classes are drawn by the softmax of Gaussian points and weights, without a constant, so that the model can be
the true one. It begins at zero. The log likelihood of all points is computed exactly while it is trained.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Options
from benchmarks.plots import curves as plot_curves
from benchmarks.research.estimators import (
    BERNOULLI,
    CPU,
    EXACT,
    IMPORTANCE,
    STANDARD,
    Estimate,
    PaperFigure,
    Result,
    Results,
    estimators,
)
from turret.training.losses.catalog import full_softmax
from turret.training.losses.pairwise import ranking
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.complement import ComplementSampler

POINTS, WIDTH, BATCH, CANDIDATES, MOMENTUM = 2_000, 100, 50, 20, 0.99
CLASSES, CLASSES_OF_RANKINGS = 1_000, 500
STEPS, QUICK_STEPS, CHECK = 1_000, 80, 20
# The article prints no rate. The exact gradient and all that approximate it have one; BlackOut and the
# ranking have the largest of these that converges.
RATE, RATES = 0.02, (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
TUNED = ("BlackOut", "ranking")
# With this power the classes in a Bernoulli draw are about 20.
BERNOULLI_ALPHA = 0.54
# The methods that the paper displays, and those that it leaves out.
PANELS = {
    "displayed in the paper": (EXACT, IMPORTANCE, BERNOULLI, *TUNED),
    "left out there": (EXACT, STANDARD, "noise contrastive estimation", "negative sampling"),
}
DELTAS = (0.0, 2.0, 4.0, math.log(CLASSES_OF_RANKINGS - 1), 8.0, 10.0, 12.0)
# A training converges if its log likelihood of a point never lies this far below an earlier one.
CONVERGED = 0.05
LOWEST = -1e6  # in place of a log likelihood that isn't finite


def points_of(class_count: int) -> tuple[Tensor, Tensor]:
    """Gaussian points [P, D], and classes [P] by a softmax of Gaussian weights."""
    random = stream(0, "regression", 0)
    points = random.normal(size=(POINTS, WIDTH))
    scores = points @ random.normal(size=(class_count, WIDTH)).T
    classes = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    return torch.from_numpy(points).float(), torch.from_numpy(classes)


def estimate_of(name: str, classes: Tensor, class_count: int) -> Estimate:
    """An estimator over draws by the frequency of classes; classes without a point are never drawn."""
    counts = np.bincount(classes.numpy(), minlength=class_count)
    alpha = BERNOULLI_ALPHA if name == BERNOULLI else 1.0
    wanted = estimators(class_count)[name]
    sampler = wanted.sampler(unigram_weights(counts, alpha, added=0.0), CANDIDATES, CPU)
    return Estimate(wanted.loss, sampler, wanted.keeps_hits)


def ranking_of(delta: float) -> Estimate:
    """The ranking over even draws: at log(C - 1) complementary sums of one candidate each (eq. 25-27)."""
    sampler = ComplementSampler(np.ones(CLASSES_OF_RANKINGS), CANDIDATES, CPU)
    return Estimate(partial(ranking, delta=delta), sampler)


class _Scores:
    """The scores w x of a batch, of which those that are asked for are counted."""

    def __init__(self, points: Tensor, weights: Tensor) -> None:
        self.points, self.weights, self.count = points, weights, 0

    def all(self) -> Tensor:
        """Those with all classes: [B, C]."""
        self.count += len(self.points) * len(self.weights)
        return self.points @ self.weights.T

    def of(self, ids: Tensor) -> Tensor:
        """Those with classes [K] or [B, K]: [B, K]."""
        ids = ids.expand(len(self.points), -1)
        self.count += ids.numel()
        return torch.einsum("bd,bkd->bk", self.points, self.weights[ids])


def trained(class_count: int, steps: int, name: str, rate: float, delta: float | None = None) -> Result:
    """Train by one estimator, exactly, or by the ranking with `delta`; all see the same batches.

    The result has the mean log likelihood of all points every `CHECK` steps.
    """
    points, classes = points_of(class_count)
    estimate = None if name == EXACT else estimate_of(name, classes, class_count)
    estimate = estimate if delta is None else ranking_of(delta)
    weights = torch.zeros(class_count, WIDTH, requires_grad=True)
    optimiser = torch.optim.SGD([weights], rate, momentum=MOMENTUM)
    likelihoods, counts, random = list[float](), list[int](), stream(0, "draw", 0)
    for step in range(steps):
        order = stream(0, "order", step * BATCH // POINTS).permutation(POINTS)
        batch = torch.from_numpy(order[step * BATCH % POINTS :][:BATCH])
        scores, own = _Scores(points[batch], weights), classes[batch]
        if estimate is None:
            losses = full_softmax(scores.all(), own)
        else:
            query = scores.points
            context = DrawContext(random, own, query, weights.detach().__getitem__)
            losses = estimate.losses(query, own, scores.of(own[:, None])[:, 0], scores.of, context)
        optimiser.zero_grad()
        torch.autograd.backward(losses.mean())
        optimiser.step()
        counts.append(scores.count)
        if (step + 1) % CHECK == 0:
            with torch.no_grad():
                value = -float(full_softmax(points @ weights.T, classes).mean())
            likelihoods.append(value if value > LOWEST else LOWEST)
    return {
        "estimator": name,
        "rate": rate,
        "delta": delta,
        "log_likelihood": likelihoods,
        "exponentials": float(np.mean(counts)),
    }


def runs_by_estimator(options: Options) -> dict[str, partial[Result]]:
    """Every estimator, and exact training."""
    steps = QUICK_STEPS if options.quick else STEPS
    return {
        f"{name}, rate {rate:g}": partial(trained, CLASSES, steps, name, rate)
        for name in (EXACT, *estimators(CLASSES))
        for rate in (RATES if name in TUNED and not options.quick else (RATE,))
    }


def runs_by_delta(options: Options) -> dict[str, partial[Result]]:
    """The ranking by Delta."""
    steps = QUICK_STEPS if options.quick else STEPS
    return {
        f"Delta = {delta:.2f}": partial(trained, CLASSES_OF_RANKINGS, steps, "ranking", RATE, delta)
        for delta in DELTAS
    }


def chosen(results: Results) -> dict[str, Result]:
    """The run of each estimator: of several rates the largest that converges, else the smallest."""
    found: dict[str, Result] = {}
    for one in sorted(results.values(), key=lambda one: one["rate"]):
        curve = np.array(one["log_likelihood"])
        converges = (np.maximum.accumulate(curve) - curve).max() <= CONVERGED
        if converges or one["estimator"] not in found:
            found[one["estimator"]] = one
    return found


def plot_by_estimator(results: Results, path: Path) -> None:
    """A panel for the displayed methods, and one for those that the paper leaves out."""
    curves = chosen(results)
    _plot({title: {name: curves[name] for name in names} for title, names in PANELS.items()}, path)


def plot_by_delta(results: Results, path: Path) -> None:
    """A curve a Delta."""
    _plot({"ranking": results}, path)


def _plot(panels: Mapping[str, Results], path: Path) -> None:
    lines = {
        title: {name: [-value for value in one["log_likelihood"]] for name, one in results.items()}
        for title, results in panels.items()
    }
    most = max(len(line) for own in lines.values() for line in own.values())
    points = [float(CHECK * (place + 1)) for place in range(most)]
    plot_curves(lines, ("iteration", "negative log likelihood of a point"), path, points, ("linear", "log"))


BY_ESTIMATOR = PaperFigure("botev_2a", runs_by_estimator, plot_by_estimator)
BY_DELTA = PaperFigure("botev_2b", runs_by_delta, plot_by_delta)
