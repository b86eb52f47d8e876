"""Botev et al. 2017, figures 2(a) and 2(b): a softmax regression by each estimator, and by rankings.

Classes are drawn by the softmax of Gaussian points and weights; the log likelihood of all points is computed
exactly while an estimator trains. Scores have no constant and begin at zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.plots import curves as plot_curves
from benchmarks.research.runs import PaperFigure, Result, Results, Scale, by_setting, key_of
from turret.training.losses.binary import nce, negative_sampling
from turret.training.losses.catalog import full_softmax
from turret.training.losses.pairwise import ranking
from turret.training.losses.sampled import blackout, sampled_softmax, standard_importance
from turret.training.objectives.contract import Loss
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.fixed.alias import Weights
from turret.training.samplers.fixed.bernoulli import BernoulliSampler
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import PopularitySampler

CPU = torch.device("cpu")
EXACT = "exact"
IMPORTANCE = "complementary sum sampling, importance"
BERNOULLI = "complementary sum sampling, Bernoulli"
STANDARD = "standard importance sampling"


@dataclass(frozen=True)
class Problem:
    """P = `point_count` points in D = `width` dimensions, of C = `class_count` classes; how long to train."""

    class_count: int = 1000
    width: int = 100
    point_count: int = 2000
    batch_size: int = 50
    candidates: int = 20
    epochs: int = 60


@dataclass(frozen=True)
class Estimator:
    """A loss and its proposal, by frequency^alpha.

    `keeps_hits`: a drawn class of the point itself counts.
    """

    loss: Loss
    sampler: Callable[[Weights, int, torch.device], Sampler]
    keeps_hits: bool = False
    alpha: float = 1.0


def estimators(class_count: int) -> dict[str, Estimator]:
    """The estimators of the figure."""
    return {
        IMPORTANCE: Estimator(sampled_softmax, ComplementSampler),
        BERNOULLI: Estimator(sampled_softmax, BernoulliSampler),
        STANDARD: Estimator(standard_importance, PopularitySampler, keeps_hits=True),
        "noise contrastive estimation": Estimator(nce, PopularitySampler, keeps_hits=True),
        "negative sampling": Estimator(negative_sampling, PopularitySampler),
        "BlackOut": Estimator(blackout, PopularitySampler),
        "ranking": Estimator(partial(ranking, delta=math.log(class_count - 1)), ComplementSampler),
    }


def ranking_at(delta: float) -> Estimator:
    """The ranking loss over classes drawn evenly, as its equality with the complementary sum needs it.

    At `delta` = log(C - 1) a pair is complementary sum sampling of one uniform candidate (eq. 25-27).
    """
    return Estimator(partial(ranking, delta=delta), ComplementSampler, alpha=0.0)


def points_of(problem: Problem, seed: int) -> tuple[Tensor, Tensor]:
    """Gaussian points [P, D], and classes [P] by a softmax of Gaussian weights."""
    random = stream(seed, "regression", 0)
    points = random.normal(size=(problem.point_count, problem.width))
    scores = points @ random.normal(size=(problem.class_count, problem.width)).T
    classes = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    return torch.from_numpy(points).float(), torch.from_numpy(classes)


def train(
    problem: Problem, estimator: Estimator | None, seed: int, rate: float, momentum: float
) -> list[float]:
    """The mean log likelihood of all points after each epoch of SGD; None trains exactly.

    All estimators see the same batches.
    """
    points, classes = points_of(problem, seed)
    weights = torch.zeros(problem.class_count, problem.width, requires_grad=True)
    optimiser = torch.optim.SGD([weights], rate, momentum=momentum)
    sampler = _sampler(problem, estimator, classes)
    likelihoods = []
    for epoch in range(problem.epochs):
        order = torch.from_numpy(stream(seed, "order", epoch).permutation(problem.point_count))
        random = stream(seed, "draw", epoch)
        for batch in torch.split(order, problem.batch_size):
            scores = points[batch] @ weights.T
            optimiser.zero_grad()
            loss = _losses(scores, classes[batch], estimator, sampler, random).mean()
            torch.autograd.backward(loss)
            optimiser.step()
        with torch.no_grad():
            likelihoods.append(-float(full_softmax(points @ weights.T, classes).mean()))
    return likelihoods


def _sampler(problem: Problem, estimator: Estimator | None, classes: Tensor) -> Sampler | None:
    if estimator is None:
        return None
    counts = np.bincount(classes.numpy(), minlength=problem.class_count)
    return _Occurring(estimator, counts.astype(np.float64) ** estimator.alpha, problem.candidates)


class _Occurring(Sampler):
    """The draws of an estimator's sampler among the classes whose weight isn't zero."""

    def __init__(self, estimator: Estimator, weights: Weights, candidates: int) -> None:
        self.classes = torch.from_numpy(np.flatnonzero(weights))
        self.numbers = torch.from_numpy(np.cumsum(weights > 0.0) - 1)
        self.sampler = estimator.sampler(weights[weights > 0.0], candidates, CPU)

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw; every positive occurs."""
        draw = self.sampler.draw(query, self.numbers[positives], context)
        return replace(draw, ids=self.classes[draw.ids])

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """That of the classes that occur."""
        return self.sampler.probability(query, context)


def _losses(
    scores: Tensor,
    classes: Tensor,
    estimator: Estimator | None,
    sampler: Sampler | None,
    random: np.random.Generator,
) -> Tensor:
    if estimator is None or sampler is None:
        return full_softmax(scores, classes)
    query = scores.detach()
    draw = sampler.draw(query, classes, DrawContext(random, classes, query, query.__getitem__))
    draw = draw.keeping_hits(classes) if estimator.keeps_hits else draw
    positive = scores.gather(1, classes[:, None])[:, 0]
    return estimator.loss(positive, scores.gather(1, draw.ids.expand(len(scores), -1)), draw)


def largest_fall(values: Sequence[float]) -> float:
    """The most that a curve ever lies below an earlier point of itself."""
    highest, fall = -math.inf, 0.0
    for value in values:
        highest = max(highest, value)
        fall = max(fall, highest - value)
    return fall


# The article prints no rate. The exact gradient and all that approximate it have one, here the largest with
# which exact training and complementary sums converge; BlackOut and the ranking each have their largest.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
RATES_OF_RANKINGS = (0.01, 0.03, 0.1)
MOMENTUM = 0.99
TUNED = ("BlackOut", "ranking")
DISPLAYED = (EXACT, IMPORTANCE, BERNOULLI, *TUNED)
LEFT_OUT = (STANDARD, "noise contrastive estimation", "negative sampling")
# The power of the frequency with which about 20 classes are in a Bernoulli draw.
BERNOULLI_ALPHA = 0.54
EPOCHS, QUICK_EPOCHS = 40, 6
# A training converges if its log likelihood of a point never falls further.
CONVERGED = 0.01
# In place of a log likelihood that isn't finite.
LOWEST = -1e6
CLASSES_OF_RANKING = 500
LOG_OTHERS = f"log(C - 1) = {math.log(CLASSES_OF_RANKING - 1):.2f}"
_DELTAS = {f"{delta:g}": delta for delta in (0.0, 2.0, 4.0, 8.0, 10.0, 12.0)}
_DELTAS[LOG_OTHERS] = math.log(CLASSES_OF_RANKING - 1)
DELTAS = dict(sorted(_DELTAS.items(), key=lambda item: item[1]))


def _problem(scale: Scale) -> Problem:
    return Problem(epochs=QUICK_EPOCHS if scale.quick else EPOCHS)


def runs_by_estimator(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each rate and estimator."""
    problem = _problem(scale)
    wanted: dict[str, Estimator | None] = {EXACT: None, **estimators(problem.class_count)}
    wanted[BERNOULLI] = replace(estimators(problem.class_count)[BERNOULLI], alpha=BERNOULLI_ALPHA)
    return {
        key_of(f"{rate:g}", name): partial(_curve, problem, estimator, rate)
        for rate in RATES
        for name, estimator in wanted.items()
    }


def runs_by_delta(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each rate and Delta, and the exact one."""
    problem = replace(_problem(scale), class_count=CLASSES_OF_RANKING)
    wanted = {EXACT: None} | {name: ranking_at(delta) for name, delta in DELTAS.items()}
    return {
        key_of(f"{rate:g}", name): partial(_curve, problem, estimator, rate)
        for rate in RATES_OF_RANKINGS
        for name, estimator in wanted.items()
    }


def _curve(problem: Problem, estimator: Estimator | None, rate: float) -> Result:
    curve = train(problem, estimator, 0, rate, MOMENTUM)
    return {"log_likelihood": [value if value > LOWEST else LOWEST for value in curve]}


def chosen(results: Results) -> tuple[dict[str, str], dict[str, list[float]]]:
    """The rate and the curve of each estimator; the smallest rate where none converges."""
    by_rate = by_setting(results, "log_likelihood")
    smallest, *_ = by_rate

    def largest(names: Sequence[str]) -> str:
        good = [rate for rate, made in by_rate.items() if all(_converges(made[name]) for name in names)]
        return [smallest, *good][-1]

    shared = largest((EXACT, IMPORTANCE, BERNOULLI))
    rates = {name: largest((name,)) if name in TUNED else shared for name in by_rate[smallest]}
    return rates, {name: by_rate[rate][name] for name, rate in rates.items()}


def _converges(curve: Sequence[float]) -> bool:
    return largest_fall(curve) <= CONVERGED


def plot_by_estimator(results: Results, path: Path) -> None:
    """The displayed methods, and those that the paper leaves out."""
    _, curves = chosen(results)
    groups = {"displayed in the paper": DISPLAYED, "left out there": (EXACT, *LEFT_OUT)}
    _plot({title: {name: curves[name] for name in names} for title, names in groups.items()}, path)


def plot_by_delta(results: Results, path: Path) -> None:
    """A panel a rate, a curve a Delta."""
    _plot({f"rate {rate}": made for rate, made in by_setting(results, "log_likelihood").items()}, path)


def _plot(panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    negative = {
        title: {name: [-value for value in curve] for name, curve in curves.items()}
        for title, curves in panels.items()
    }
    plot_curves(negative, ("epoch", "negative log likelihood of a point"), path, scales=("linear", "log"))


BY_ESTIMATOR = PaperFigure("regression", runs_by_estimator, plot_by_estimator)
BY_DELTA = PaperFigure("ranking", runs_by_delta, plot_by_delta)
