"""Blanc & Rendle 2018, figure 2: a language model by each sampler."""

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
    CPU,
    EXACT,
    Estimate,
    PaperFigure,
    Result,
    Results,
)
from benchmarks.research.language_model import Text, WordModel, shakespeare, train
from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores
from turret.training.losses.sampled import sampled_softmax
from turret.training.objectives.arguments import GivenStatistics
from turret.training.samplers.adaptive.dense import (
    DenseSampler,
    SoftmaxConfig,
    quartic_kernel,
    softmax_kernel,
)
from turret.training.samplers.adaptive.ngram import BigramSampler, NgramTables
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.complement import ComplementSampler

WIDTH, EPOCHS = 24, 2


EXACT_ABSOLUTE = "exact, absolute softmax"
KERNEL_ALPHA = 100.0
# Symmetric kernels train the absolute softmax, as the paper advises (section 3.3).
ABSOLUTE = ("quadratic", "quartic", EXACT_ABSOLUTE)
SIZES: Mapping[str, tuple[int, ...]] = {
    EXACT: (0,),
    EXACT_ABSOLUTE: (0,),
    "uniform": (8, 32, 128, 512),
    "unigram": (8, 32, 128),
    "bigram": (8, 32, 128),
    "quadratic": (8, 32, 128),
    "quartic": (8, 128),
    "softmax": (8, 128),
}


def quadratic_kernel(query: Tensor, vectors: Tensor) -> Tensor:
    """log(alpha o^2 + 1) of all logits: the tree's distribution, faster at 10,000 words of a narrow model."""
    scores = cross_scores(query, vectors, ScoringConfig(kind="dot", temperature=1.0))
    return torch.log1p(KERNEL_ALPHA * scores.square_())


def sampler_of(kind: str, size: int, text: Text) -> Sampler:
    """m = `size` words an example; all samplers but the bigram leave the example's own word out."""
    scoring = ScoringConfig(kind="dot", temperature=1.0)
    kernels = {
        "quadratic": quadratic_kernel,
        "quartic": quartic_kernel(scoring),
        "softmax": softmax_kernel(scoring),
    }
    if kind in kernels:
        settings = SoftmaxConfig(negatives=size, exclude_positive=True)
        context = BuildContext(GivenStatistics(text.vocabulary), scoring, 0, CPU)
        return DenseSampler(settings, context, kernels[kind])
    unigram = unigram_weights(text.counts(), 1.0)
    if kind == "bigram":
        return BigramSampler(NgramTables(*text.bigrams(), unigram), size)
    return ComplementSampler(np.ones(text.vocabulary) if kind == "uniform" else unigram, size, CPU)


def sampler_runs(options: Options) -> dict[str, partial[Result]]:
    """Both full softmaxes, and each sampler at each m."""
    text = shakespeare(options.data, options.quick)
    return {
        f"{kind}, m = {size}" if size else kind: partial(by_sampler, text, options.quick, kind, size)
        for kind, sizes in SIZES.items()
        for size in sizes
    }


def by_sampler(text: Text, quick: bool, kind: str, size: int) -> Result:
    """Train by the softmax over a sampler's draws, or by the full one for m = 0."""
    model = WordModel(text.vocabulary, WIDTH, kind in ABSOLUTE)
    estimate = Estimate(sampled_softmax, sampler_of(kind, size, text)) if size else None
    return {"sampler": kind, "m": size, **train(model, text, 1 if quick else EPOCHS, estimate)}


def plot_by_sampler(results: Results, path: Path) -> None:
    """The perplexity over m, a curve a sampler."""
    sizes = sorted({size for own in SIZES.values() for size in own if size})
    found = {(one["sampler"], one["m"]): math.exp(one["cross_entropy"][-1]) for one in results.values()}
    lines = {
        name: [found.get((name, 0 if own == (0,) else size), math.nan) for size in sizes]
        for name, own in sorted(SIZES.items(), key=lambda pair: pair[1] == (0,))
    }
    title = f"{results[EXACT]['words']:,} words"
    points = [float(size) for size in sizes]
    plot_curves({title: lines}, ("m", "perplexity of held-out words"), path, points, ("log", "log"))


BY_SAMPLER = PaperFigure("blanc_rendle_2", sampler_runs, plot_by_sampler)
