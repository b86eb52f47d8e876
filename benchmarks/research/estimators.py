"""The estimators of Botev et al. 2017, and the figures of papers: named trainings with a plot."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness import Options
from turret.training.losses.binary import nce, negative_sampling
from turret.training.losses.pairwise import ranking
from turret.training.losses.sampled import blackout, sampled_softmax, standard_importance
from turret.training.objectives.contract import Loss
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.fixed.alias import Weights
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.fixed.popularity import BernoulliSampler, PopularitySampler

CPU = torch.device("cpu")
EXACT = "exact"
IMPORTANCE = "complementary sum sampling, importance"
BERNOULLI = "complementary sum sampling, Bernoulli"
STANDARD = "standard importance sampling"
Result = dict[str, Any]
Results = Mapping[str, Result]
"""The result of each run of a figure, by the name of the run."""


class PaperFigure(NamedTuple):
    """A figure: its runs, each made and kept alone, and its plot; one `measurement` may have several."""

    measurement: str
    runs: Callable[[Options], Mapping[str, Callable[[], Result]]]
    plot: Callable[[Results, Path], None]
    ending: str = "svg"


class Estimate(NamedTuple):
    """A loss over a sampler's draw. `keeps_hits`: a drawn positive of the example itself counts."""

    loss: Loss
    sampler: Sampler
    keeps_hits: bool = False

    def losses(
        self,
        query: Tensor,
        positives: Tensor,
        own: Tensor,
        scores: Callable[[Tensor], Tensor],
        context: DrawContext,
    ) -> Tensor:
        """The loss [B] of examples with queries [B, D], positives [B] and their scores `own` [B].

        `scores` gives those [B, K] of drawn ids [K] or [B, K].
        """
        draw = self.sampler.draw(query, positives, context)
        draw = draw.keeping_hits(positives) if self.keeps_hits else draw
        return self.loss(own, scores(draw.ids), draw)


class Estimator(NamedTuple):
    """A loss and its proposal."""

    loss: Loss
    sampler: Callable[[Weights, int, torch.device], Sampler]
    keeps_hits: bool = False


def estimators(class_count: int) -> dict[str, Estimator]:
    """The estimators that the paper compares."""
    return {
        IMPORTANCE: Estimator(sampled_softmax, ComplementSampler),
        BERNOULLI: Estimator(sampled_softmax, BernoulliSampler),
        STANDARD: Estimator(standard_importance, PopularitySampler, keeps_hits=True),
        "noise contrastive estimation": Estimator(nce, PopularitySampler, keeps_hits=True),
        "negative sampling": Estimator(negative_sampling, PopularitySampler),
        "BlackOut": Estimator(blackout, PopularitySampler),
        "ranking": Estimator(partial(ranking, delta=math.log(class_count - 1)), ComplementSampler),
    }


def by_setting(results: Results, measure: str) -> dict[str, dict[str, list[float]]]:
    """The curve of `measure` of each estimator, by setting, of runs called `SETTING: ESTIMATOR`."""
    curves: dict[str, dict[str, list[float]]] = {}
    for key, result in results.items():
        setting, colon, name = key.partition(": ")
        if colon:
            curves.setdefault(setting, {})[name] = result[measure]
    return curves
