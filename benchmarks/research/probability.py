"""Botev et al. 2017, figure 1: the probability of a class, estimated from 10 to 50 of 10,000 classes."""

import math
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Options
from benchmarks.plots import figure
from benchmarks.research.estimators import BERNOULLI, CPU, STANDARD, Estimate, PaperFigure, Result, Results
from turret.training.losses.sampled import sampled_softmax, standard_importance
from turret.training.randomness import stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import BernoulliSampler, PopularitySampler

CLASSES, POINTS, CANDIDATES = 10_000, 200, (10, 20, 50)
COMPLEMENTARY = "complementary sum sampling"
CAPTIONED, SPREAD = "captioned", "captioned, y spread"


class Points(NamedTuple):
    """Scores [P, C] of points, their classes [P], and the logs of the classes' probabilities [P]."""

    scores: Tensor
    classes: Tensor
    log_true: Tensor


def points_of(kind: str, count: int, random: np.random.Generator) -> Points:
    """Points with weights u_i uniform on [0, 1], but for the class of the point.

    `CAPTIONED`: u_1 = exp(C y) with y drawn from a normal one, as the caption has it; u_1 or 1 / u_1 has
    thousands of digits, so nothing but its logarithm C y is formed. `SPREAD`: with the y that make the
    probability of the class uniform.
    """
    # 1 - u is uniform as well, and never zero.
    scores = torch.from_numpy(np.log(1.0 - random.uniform(size=(count, CLASSES))))
    if kind == CAPTIONED:
        scores[:, 0] = torch.from_numpy(CLASSES * random.normal(size=count))
        return Points(scores, torch.zeros(count, dtype=torch.int64), scores.log_softmax(dim=1)[:, 0])
    classes = torch.from_numpy(random.integers(CLASSES, size=count))
    true = torch.from_numpy(random.uniform(0.0, 1.0, size=count))
    others = scores.scatter(1, classes[:, None], float("-inf")).logsumexp(dim=1)
    own = others + true.log() - (-true).log1p()
    return Points(scores.scatter(1, classes[:, None], own[:, None]), classes, true.log())


def loss_of(estimate: Estimate, score: Tensor, label: Tensor, random: np.random.Generator) -> Tensor:
    """The loss [1] of a point with scores [C] and a class [1], by a draw of its own."""
    query = torch.zeros(1, 1)
    context = DrawContext(random, label, query, query.__getitem__)
    return estimate.losses(query, label, score[label], lambda ids: score[ids].reshape(1, -1), context)


def estimated(kind: str, count: int) -> Result:
    """All estimates at each K of one set of points."""
    points, weights = points_of(kind, count, stream(0, "points", 0)), np.ones(CLASSES)
    log_true = points.log_true.double().numpy()
    true = np.exp(log_true)
    rows = []
    for size in CANDIDATES:
        for name, estimate in {
            STANDARD: Estimate(standard_importance, PopularitySampler(weights, size, CPU), keeps_hits=True),
            COMPLEMENTARY: Estimate(sampled_softmax, ComplementSampler(weights, size, CPU)),
            BERNOULLI: Estimate(sampled_softmax, BernoulliSampler(weights, size, CPU)),
        }.items():
            random = stream(0, name, size)
            pairs = zip(points.scores, points.classes[:, None], strict=True)
            losses = torch.cat([loss_of(estimate, score, label, random) for score, label in pairs])
            log_estimated = -losses.double().numpy()
            with np.errstate(over="ignore"):
                errors = np.abs(np.exp(log_estimated) - true)
            rows.append(
                {
                    "estimator": name,
                    "candidates": size,
                    # None for an infinite error.
                    "root_mean_square_error": (
                        float(np.sqrt((errors**2).mean())) if np.isfinite(errors).all() else None
                    ),
                    # The loss of a certain class is zero up to the rounding of its logarithm.
                    "share_above_one": float((log_estimated > 1e-6).mean()),
                    "true": [round(float(value), 5) for value in true],
                    "log10_estimated": [round(float(value) / math.log(10), 4) for value in log_estimated],
                }
            )
    return {
        "points": count,
        "share_undecided": float(((true > 0.01) & (true < 0.99)).mean()),
        "estimates": rows,
    }


def runs(options: Options) -> dict[str, partial[Result]]:
    """A run for each way to choose the scores."""
    count = POINTS // 4 if options.quick else POINTS
    return {kind: partial(estimated, kind, count) for kind in (CAPTIONED, SPREAD)}


def plot(kind: str, results: Results, path: Path) -> None:
    """The panels, for the points of one way to choose the scores."""
    estimates = results[kind]["estimates"]
    names = list(dict.fromkeys(one["estimator"] for one in estimates))
    with figure(path, (4.0 * len(names), 3.8), len(names), share_y=False) as panels:
        for panel, name in zip(panels, names, strict=True):
            mine = [one for one in estimates if one["estimator"] == name]
            # Estimates far above 1 have logarithms beyond those of doubles.
            is_log = any(one["share_above_one"] for one in mine)
            for one in mine:
                logs = one["log10_estimated"]
                values = logs if is_log else [10.0**value for value in logs]
                panel.plot(one["true"], values, ".", markersize=3, label=f"K = {one['candidates']}")
            # Many points, as the line is not straight among logarithms.
            right = [place / 200 for place in range(1, 201)]
            line = [math.log10(value) if is_log else value for value in right]
            panel.plot(right, line, color="black", linewidth=1)
            label = "decimal logarithm of its estimate" if is_log else "its estimate"
            panel.set(title=name, xlabel="probability of the class", ylabel=label)
            panel.legend(loc="upper left", fontsize="x-small")


AS_CAPTIONED = PaperFigure("botev_1", runs, partial(plot, CAPTIONED), "png")
OVER_ALL = PaperFigure("botev_1", runs, partial(plot, SPREAD), "png")
