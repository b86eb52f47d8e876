"""Blanc & Rendle 2018, figures 2 to 4: a language model's quality and convergence by sampler and by m."""

import math
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.plots import curves as plot_curves
from benchmarks.research.language_model import (
    CPU,
    Estimate,
    Schedule,
    Text,
    WordModel,
    generated,
    text_of,
    train,
)
from benchmarks.research.runs import PaperFigure, Result, Results, Scale
from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores
from turret.training.losses.sampled import sampled_softmax
from turret.training.samplers.adaptive.dense import DenseSampler, quartic_kernel, softmax_kernel
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.snapshot import Snapshot
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.bigram import BigramSampler
from turret.training.samplers.fixed.complement import ComplementSampler
from turret.training.samplers.kernel.quadratic import QuadraticSampler

FULL, FULL_ABSOLUTE = "exact", "exact, absolute softmax"
ALPHA = 100.0
# Symmetric kernels train the absolute softmax, as the paper advises (section 3.3).
SYMMETRIC = ("quadratic", "quartic")
SIZES: Mapping[str, tuple[int, ...]] = {
    "uniform": (8, 32, 128, 512),
    "unigram": (8, 32, 128),
    "bigram": (8, 32, 128),
    "quadratic": (8, 32, 128),
    "quartic": (8, 128),
    "softmax": (8, 128),
}
LARGE_SIZES: Mapping[str, tuple[int, ...]] = {
    "uniform": (8, 32, 128),
    "unigram": (32,),
    "quadratic": (8, 32, 128),
}
WORDS, LENGTH, WIDTH, SCHEDULE = 10_000, 110_000, 24, Schedule(epochs=2)
LARGE_WORDS, LARGE_LENGTH, LARGE_WIDTH = 100_000, 66_000, 16
LARGE_SCHEDULE = Schedule(epochs=1, checks=1)
# Item vectors are copied once in so many steps; the counts are of the copies.
REFRESH_LARGE = 100


def dense_quadratic(query: Tensor, vectors: Tensor) -> Tensor:
    """log(alpha o^2 + 1) of all logits: the tree's distribution, faster at 10,000 words of a narrow model."""
    scores = cross_scores(query, vectors, ScoringConfig(kind="dot", temperature=1.0))
    return torch.log1p(ALPHA * scores.square_())


def sampler(kind: str, size: int, text: Text) -> Sampler:
    """m = `size` words an example; all samplers but the bigram leave the example's own word out."""
    scoring = ScoringConfig(kind="dot", temperature=1.0)
    kernels = {
        "quadratic": dense_quadratic,
        "quartic": quartic_kernel(scoring),
        "softmax": softmax_kernel(scoring),
    }
    if kind == "quadratic" and text.vocabulary >= LARGE_WORDS:
        return QuadraticSampler(text.vocabulary, size, ALPHA, REFRESH_LARGE, CPU, exclude_positive=True)
    if kind in kernels:
        return DenseSampler(kernels[kind], size, Snapshot(text.vocabulary, 1, CPU), exclude_positive=True)
    unigram = unigram_weights(text.counts(), 1.0)
    if kind == "bigram":
        return BigramSampler(*text.bigrams(), unigram, 10.0, size, CPU)
    return ComplementSampler(np.ones(text.vocabulary) if kind == "uniform" else unigram, size, CPU)


@cache
def _words(folder: Path, quick: bool) -> Text:
    return text_of(folder, 1_000 if quick else WORDS, 12_000 if quick else LENGTH)


@cache
def _generated(quick: bool) -> Text:
    return generated(2_000, 12_000, 0) if quick else generated(LARGE_WORDS, LARGE_LENGTH, 0)


def trained(text: Text, kind: str, size: int, width: int, schedule: Schedule) -> Result:
    """Train once; the held-out cross-entropy before training and at every check."""
    absolute = kind in SYMMETRIC or kind == FULL_ABSOLUTE
    model = WordModel(text.vocabulary, width, absolute)
    estimate = None
    if kind not in (FULL, FULL_ABSOLUTE):
        estimate = Estimate(sampled_softmax, sampler(kind, size, text))
    return {
        "sampler": kind,
        "m": size,
        "cross_entropy": train(model, text, schedule, estimate),
        "text": text.name,
        "words": text.vocabulary,
        "training_words": len(text.training),
        "held_out_words": len(text.held_out),
        "width": width,
        **vars(schedule),
    }


def _runs(
    text: Text, sizes: Mapping[str, tuple[int, ...]], width: int, schedule: Schedule
) -> dict[str, partial[Result]]:
    wanted = [(FULL, 0), (FULL_ABSOLUTE, 0)]
    wanted += [(kind, size) for kind, some in sizes.items() for size in some]
    return {
        f"{kind}, m = {size}" if size else kind: partial(trained, text, kind, size, width, schedule)
        for kind, size in wanted
    }


def runs(scale: Scale) -> dict[str, partial[Result]]:
    """Both full softmaxes, and each sampler at each m."""
    schedule = Schedule(epochs=1) if scale.quick else SCHEDULE
    return _runs(_words(scale.data, scale.quick), SIZES, WIDTH, schedule)


def large_runs(scale: Scale) -> dict[str, partial[Result]]:
    """The same for a large vocabulary, of a generated text."""
    return _runs(_generated(scale.quick), LARGE_SIZES, LARGE_WIDTH, LARGE_SCHEDULE)


Samplers = dict[str, dict[int, list[float]]]


def by_sampler(results: Results) -> Samplers:
    """The cross-entropies of each sampler by m."""
    curves: Samplers = {}
    for result in results.values():
        if result["m"]:
            curves.setdefault(result["sampler"], {})[result["m"]] = result["cross_entropy"]
    return curves


def perplexity(curve: list[float]) -> float:
    """At the end."""
    return math.exp(curve[-1])


def plot_quality(results: Results, path: Path) -> None:
    """The perplexity over m, a curve a sampler."""
    curves = by_sampler(results)
    sizes = sorted({size for made in curves.values() for size in made})
    lines = {
        name: [perplexity(made[size]) if size in made else math.nan for size in sizes]
        for name, made in curves.items()
    }
    for name in (FULL, FULL_ABSOLUTE):
        lines[name] = [perplexity(results[name]["cross_entropy"])] * len(sizes)
    plot_curves(
        {f"{results[FULL]['words']:,} words": lines},
        ("m", "perplexity of held-out words"),
        path,
        [float(size) for size in sizes],
        ("log", "log"),
    )


def plot_by_size(results: Results, path: Path) -> None:
    """A panel a sampler, a curve an m."""
    panels = {
        name: {f"m = {size}": curve[1:] for size, curve in made.items()}
        | {"exact": results[FULL_ABSOLUTE if name in SYMMETRIC else FULL]["cross_entropy"][1:]}
        for name, made in by_sampler(results).items()
    }
    plot_curves(panels, ("epoch", "held-out cross-entropy, nats"), path, _epochs(results))


def plot_by_sampler(results: Results, path: Path) -> None:
    """A panel an m, a curve a sampler."""
    curves = by_sampler(results)
    shared = sorted(set.intersection(*(set(made) for made in curves.values())))
    panels = {
        f"m = {size}": {name: made[size][1:] for name, made in curves.items()}
        | {"exact": results[FULL]["cross_entropy"][1:]}
        for size in shared
    }
    plot_curves(panels, ("epoch", "held-out cross-entropy, nats"), path, _epochs(results))


def _epochs(results: Results) -> list[float]:
    one = results[FULL]
    return [(place + 1) / one["checks"] for place in range(one["checks"] * one["epochs"])]


FIGURES = {
    "blanc_rendle_2": PaperFigure("word_samplers", runs, plot_quality),
    "blanc_rendle_2_100k": PaperFigure("word_samplers_100k", large_runs, plot_quality),
    "blanc_rendle_3": PaperFigure("word_samplers", runs, plot_by_size),
    "blanc_rendle_4": PaperFigure("word_samplers", runs, plot_by_sampler),
}
