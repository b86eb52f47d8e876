"""Complementary sum sampling beside other estimators of the softmax, after Botev et al. 2017, figure 2(a).

Softmax regression with 1,000 classes on 2,000 points in 100 dimensions, batches of 50, 20 candidates: the log
likelihood of all points, computed exactly, while each estimator trains. Points and weights are Gaussian,
classes are drawn by the softmax, the proposal is the classes' frequency, and one optimiser (SGD with Nesterov
momentum) serves all. `benchmarks.papers` has the figure as the paper describes it.

`likelihood_gap` is how far the likelihood of a point (the geometric mean over points) lies from that of exact
training at the end, relative to the latter: the largest over the seeds. `log_likelihood_gap` is the same of
the mean log likelihood, which is near zero at the end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import RESULTS, Options, run
from benchmarks.plots import curves as plot_curves
from turret.training.losses.binary import nce, negative_sampling
from turret.training.losses.catalog import full_softmax
from turret.training.losses.pairwise import ranking
from turret.training.losses.sampled import blackout, sampled_softmax, standard_importance
from turret.training.objectives.contract import Loss
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.fixed.bernoulli import BernoulliSampler
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import PopularitySampler
from turret.training.samplers.fixed.weights import Weights, unigram_weights

CPU = torch.device("cpu")
EXACT = "exact"


@dataclass(frozen=True)
class Optimiser:
    """SGD with momentum, Nesterov's or plain."""

    rate: float
    momentum: float
    nesterov: bool = True


# One optimiser for all estimators, fast for exact training and tuned for none of the others.
OPTIMISER = Optimiser(0.3, 0.9)


@dataclass(frozen=True)
class Problem:
    """P = `point_count` points in D = `width` dimensions, of C = `class_count` classes; how long to train.

    The paper's problem (`printed`) has no constant in its scores, begins with weights of zero and draws by
    the frequency alone. Ours has a constant, which begins at -log C, and draws by the frequency plus one.
    """

    class_count: int = 1000
    width: int = 100
    point_count: int = 2000
    batch_size: int = 50
    candidates: int = 20
    epochs: int = 60
    printed: bool = False


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
        "complementary sum sampling, importance": Estimator(sampled_softmax, ComplementSampler),
        "complementary sum sampling, Bernoulli": Estimator(sampled_softmax, BernoulliSampler),
        "standard importance sampling": Estimator(standard_importance, PopularitySampler, keeps_hits=True),
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
    """Gaussian points with a one behind, [P, D + 1], and classes [P] by a softmax of Gaussian weights."""
    random = stream(seed, "regression", 0)
    points = random.normal(size=(problem.point_count, problem.width))
    scores = points @ random.normal(size=(problem.class_count, problem.width)).T
    classes = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    with_one = np.column_stack([points, np.ones(problem.point_count)])
    return torch.from_numpy(with_one).float(), torch.from_numpy(classes)


def first_weights(problem: Problem) -> Tensor:
    """[C, D + 1]: nothing is known, and the scores are log probabilities, as NCE wants them to be.

    [C, D] in the paper's problem, in which all scores are zero.
    """
    weights = torch.zeros(problem.class_count, problem.width + 1)
    weights[:, -1] = -math.log(problem.class_count)
    return (weights[:, :-1] if problem.printed else weights).requires_grad_()


def train(
    problem: Problem, estimator: Estimator | None, seed: int, settings: Optimiser = OPTIMISER
) -> list[float]:
    """The mean log likelihood of all points after each epoch; None trains exactly.

    All estimators see the same batches.
    """
    points, classes = points_of(problem, seed)
    weights = first_weights(problem)
    points = points[:, : weights.shape[1]]
    optimiser = torch.optim.SGD(
        [weights], settings.rate, momentum=settings.momentum, nesterov=settings.nesterov
    )
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
    if problem.printed:
        return _Occurring(estimator, counts.astype(np.float64) ** estimator.alpha, problem.candidates)
    return estimator.sampler(unigram_weights(counts, estimator.alpha), problem.candidates, CPU)


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


SEEDS = (0, 1, 2)
COMPARED = "complementary sum sampling, importance"

Curves = dict[str, list[float]]


def trained_by(problem: Problem, seed: int, names: Sequence[str] | None = None) -> Curves:
    """The log likelihoods of exact training and of all, or the named, estimators."""
    made = estimators(problem.class_count)
    wanted = made if names is None else {name: made[name] for name in names}
    return {
        EXACT: train(problem, None, seed),
        **{name: train(problem, estimator, seed) for name, estimator in wanted.items()},
    }


def gaps(trained: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """How far complementary sum sampling ends from exact training, in the likelihood and in its logarithm."""
    exact, compared = trained[EXACT][-1], trained[COMPARED][-1]
    return abs(math.expm1(compared - exact)), abs(compared / exact - 1.0)


def regression_figures(by_seed: Mapping[int, Curves]) -> dict[str, Any]:
    """The gaps, the ends of all curves and the curves themselves."""
    results = [gaps(trained) for trained in by_seed.values()]
    first = by_seed[SEEDS[0]]
    return {
        "likelihood_gap": max(gap for gap, _ in results),
        "log_likelihood_gap": max(gap for _, gap in results),
        "final_log_likelihood": {name: values[-1] for name, values in first.items()},
        # By how much a curve lies below the highest point that it has been at, at most.
        "largest_fall": {name: largest_fall(values) for name, values in first.items()},
        "figure2a": first,
    }


def largest_fall(values: Sequence[float]) -> float:
    """The most that a curve ever lies below an earlier point of itself."""
    highest, fall = -math.inf, 0.0
    for value in values:
        highest = max(highest, value)
        fall = max(fall, highest - value)
    return fall


def measure(options: Options) -> dict[str, Any]:
    """The figures, and for a full run the plot."""
    problem = Problem(epochs=6) if options.quick else Problem()
    seeds = SEEDS[:1] if options.quick else SEEDS
    by_seed = {seed: trained_by(problem, seed, None if seed == SEEDS[0] else [COMPARED]) for seed in seeds}
    if not options.quick:
        first = {name: [-value for value in values] for name, values in by_seed[SEEDS[0]].items()}
        labels = "epoch", "mean negative log likelihood of a point"
        plot_curves(
            {"softmax regression": first},
            labels,
            RESULTS / "complementary_sum_figure2a.png",
            scales=("linear", "log"),
        )
    return {
        **regression_figures(by_seed),
        "configuration": {
            "figure2a": {**vars(problem), **vars(OPTIMISER)},
            "seeds": list(seeds),
        },
    }


if __name__ == "__main__":
    # Batches of 50 are too small to share between threads.
    torch.set_num_threads(1)
    run(measure, needs_data=False)
