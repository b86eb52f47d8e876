"""Botev et al. 2017, figures 2(a) and 2(b): a softmax regression by each estimator, and by rankings.

Classes are drawn by the softmax of Gaussian points and weights; the log likelihood of all points is computed
exactly while an estimator trains. Scores have no constant and begin at zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    Estimator,
    PaperFigure,
    Result,
    Results,
    by_setting,
    estimators,
)
from turret.training.losses.catalog import full_softmax
from turret.training.losses.pairwise import ranking
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.fixed.alias import Weights
from turret.training.samplers.fixed.complement import ComplementSampler

POINTS, WIDTH, BATCH, CANDIDATES = 2000, 100, 50, 20
CLASSES, CLASSES_OF_RANKING = 1000, 500
EPOCHS, QUICK_EPOCHS = 40, 6
# The article prints no rate. The exact gradient and all that approximate it have one, here the largest with
# which exact training and complementary sums converge; BlackOut and the ranking each have their largest.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
RATES_OF_RANKINGS = (0.01, 0.03, 0.1)
MOMENTUM = 0.99
TUNED = ("BlackOut", "ranking")
# The methods that the paper displays, and those that it leaves out.
GROUPS = {
    "displayed in the paper": (EXACT, IMPORTANCE, BERNOULLI, *TUNED),
    "left out there": (EXACT, STANDARD, "noise contrastive estimation", "negative sampling"),
}
# The power of the frequency with which about 20 classes are in a Bernoulli draw.
BERNOULLI_ALPHA = 0.54
# A training converges if its log likelihood of a point never falls further.
CONVERGED = 0.01
# In place of a log likelihood that isn't finite.
LOWEST = -1e6
LOG_OTHERS = math.log(CLASSES_OF_RANKING - 1)


class _Occurring(Sampler):
    """The draws of an estimator's sampler among the classes whose weight isn't zero."""

    def __init__(self, estimator: Estimator, weights: Weights) -> None:
        self.classes = torch.from_numpy(np.flatnonzero(weights))
        self.numbers = torch.from_numpy(np.cumsum(weights > 0.0) - 1)
        self.sampler = estimator.sampler(weights[weights > 0.0], CANDIDATES, CPU)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw; every positive occurs."""
        draw = self.sampler.draw(query, self.numbers[positives], context)
        return replace(draw, ids=self.classes[draw.ids])

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """That of the classes that occur."""
        return self.sampler.probability(query, context)


def points_of(class_count: int) -> tuple[Tensor, Tensor]:
    """Gaussian points [P, D], and classes [P] by a softmax of Gaussian weights."""
    random = stream(0, "regression", 0)
    points = random.normal(size=(POINTS, WIDTH))
    scores = points @ random.normal(size=(class_count, WIDTH)).T
    classes = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    return torch.from_numpy(points).float(), torch.from_numpy(classes)


def trained(class_count: int, epochs: int, estimator: Estimator | None, rate: float) -> Result:
    """The mean log likelihood of all points after each epoch of SGD; None trains exactly.

    All estimators see the same batches.
    """
    points, classes = points_of(class_count)
    weights = torch.zeros(class_count, WIDTH, requires_grad=True)
    optimiser = torch.optim.SGD([weights], rate, momentum=MOMENTUM)
    estimate = None
    if estimator is not None:
        counts = np.bincount(classes.numpy(), minlength=class_count).astype(np.float64)
        drawn = _Occurring(estimator, counts**estimator.alpha)
        estimate = Estimate(estimator.loss, drawn, estimator.keeps_hits)
    likelihoods = []
    for epoch in range(epochs):
        order = torch.from_numpy(stream(0, "order", epoch).permutation(POINTS))
        random = stream(0, "draw", epoch)
        for batch in torch.split(order, BATCH):
            optimiser.zero_grad()
            scores = points[batch] @ weights.T
            torch.autograd.backward(_losses(scores, classes[batch], estimate, random).mean())
            optimiser.step()
        with torch.no_grad():
            likelihoods.append(-float(full_softmax(points @ weights.T, classes).mean()))
    return {"log_likelihood": [value if value > LOWEST else LOWEST for value in likelihoods]}


def _losses(
    scores: Tensor, classes: Tensor, estimate: Estimate | None, random: np.random.Generator
) -> Tensor:
    if estimate is None:
        return full_softmax(scores, classes)
    query = scores.detach()
    context = DrawContext(random, classes, query, query.__getitem__)
    own = scores.gather(1, classes[:, None])[:, 0]
    return estimate.losses(
        query, classes, own, lambda ids: scores.gather(1, ids.expand(len(scores), -1)), context
    )


def _runs(
    wanted: Mapping[str, Estimator | None], class_count: int, rates: Sequence[float], options: Options
) -> dict[str, partial[Result]]:
    """A training for each rate and estimator."""
    epochs = QUICK_EPOCHS if options.quick else EPOCHS
    return {
        f"{rate:g}: {name}": partial(trained, class_count, epochs, estimator, rate)
        for rate in rates
        for name, estimator in wanted.items()
    }


def runs_by_estimator(options: Options) -> dict[str, partial[Result]]:
    """Every estimator, and exact training."""
    wanted: dict[str, Estimator | None] = {EXACT: None, **estimators(CLASSES)}
    wanted[BERNOULLI] = estimators(CLASSES)[BERNOULLI]._replace(alpha=BERNOULLI_ALPHA)
    return _runs(wanted, CLASSES, RATES, options)


def runs_by_delta(options: Options) -> dict[str, partial[Result]]:
    """The ranking loss by Delta, and exact training.

    Classes are drawn evenly, as the ranking's equality with the complementary sum needs it: at Delta =
    log(C - 1) a pair is complementary sum sampling of one uniform candidate (eq. 25-27).
    """
    wanted: dict[str, Estimator | None] = {EXACT: None}
    for delta in (0.0, 2.0, 4.0, LOG_OTHERS, 8.0, 10.0, 12.0):
        name = f"log(C - 1) = {delta:.2f}" if delta == LOG_OTHERS else f"{delta:g}"
        wanted[name] = Estimator(partial(ranking, delta=delta), ComplementSampler, alpha=0.0)
    return _runs(wanted, CLASSES_OF_RANKING, RATES_OF_RANKINGS, options)


def largest_fall(values: Sequence[float]) -> float:
    """The most that a curve ever lies below an earlier point of itself."""
    highest, fall = -math.inf, 0.0
    for value in values:
        highest = max(highest, value)
        fall = max(fall, highest - value)
    return fall


def chosen(results: Results) -> dict[str, list[float]]:
    """The curve of each estimator at its rate; at the smallest where none converges."""
    by_rate = by_setting(results, "log_likelihood")

    def largest(*names: str) -> str:
        good = [
            rate
            for rate, made in by_rate.items()
            if all(largest_fall(made[name]) <= CONVERGED for name in names)
        ]
        return [next(iter(by_rate)), *good][-1]

    shared = largest(EXACT, IMPORTANCE, BERNOULLI)
    names = next(iter(by_rate.values()))
    return {name: by_rate[largest(name) if name in TUNED else shared][name] for name in names}


def plot_by_estimator(results: Results, path: Path) -> None:
    """A panel for the displayed methods, and one for those that the paper leaves out."""
    curves = chosen(results)
    _plot({title: {name: curves[name] for name in names} for title, names in GROUPS.items()}, path)


def plot_by_delta(results: Results, path: Path) -> None:
    """A panel a rate, a curve a Delta."""
    _plot({f"rate {rate}": made for rate, made in by_setting(results, "log_likelihood").items()}, path)


def _plot(panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    negative = {
        title: {name: [-value for value in curve] for name, curve in curves.items()}
        for title, curves in panels.items()
    }
    plot_curves(negative, ("epoch", "negative log likelihood of a point"), path, scales=("linear", "log"))


BY_ESTIMATOR = PaperFigure(runs_by_estimator, plot_by_estimator)
BY_DELTA = PaperFigure(runs_by_delta, plot_by_delta)
