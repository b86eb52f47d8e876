"""The samplers of Blanc & Rendle 2018 by name, and their figure 2: the quality at the end over m.

The article's kernels are symmetric, so they train the absolute softmax (section 3.3).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.plots import curves as plot_curves
from benchmarks.research.estimators import CPU, EXACT, Result
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores
from turret.training.objectives.arguments import GivenStatistics
from turret.training.samplers.adaptive.dense import (
    DenseSampler,
    LogKernel,
    SoftmaxConfig,
    quartic_kernel,
    softmax_kernel,
)
from turret.training.samplers.adaptive.ngram import BigramSampler, NgramTables
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.complement import ComplementSampler

Ids = NDArray[np.int64]
Sizes = Mapping[str, tuple[int, ...]]
"""The numbers m of drawn classes by sampler; 0 is the softmax of all classes."""

KERNEL_ALPHA = 100.0
EXACT_ABSOLUTE = "exact, absolute softmax"
ABSOLUTE = ("quadratic", "quartic", EXACT_ABSOLUTE)
DOT = ScoringConfig(kind="dot", temperature=1.0)


def quadratic_kernel(query: Tensor, vectors: Tensor) -> Tensor:
    """log(alpha o^2 + 1) of all logits: the tree's distribution, faster with 10,000 classes."""
    return torch.log1p(KERNEL_ALPHA * cross_scores(query, vectors, DOT).square_())


KERNELS: Mapping[str, LogKernel] = {
    "quadratic": quadratic_kernel,
    "quartic": quartic_kernel(DOT),
    "softmax": softmax_kernel(DOT),
}


def sampler_of(name: str, size: int, counts: Ids, pairs: tuple[Ids, Ids] | None = None) -> Sampler:
    """m = `size` classes an example; all samplers but the bigram leave the example's own class out.

    `counts` [N] are of the training examples. The bigram reads their sorted `pairs` last * N + next, with
    counts.
    """
    if name in KERNELS:
        settings = SoftmaxConfig(negatives=size, exclude_positive=True)
        return DenseSampler(settings, BuildContext(GivenStatistics(len(counts)), DOT, 0, CPU), KERNELS[name])
    unigram = unigram_weights(counts, 1.0)
    if name == "bigram":
        assert pairs is not None
        return BigramSampler(NgramTables(*pairs, unigram), size)
    return ComplementSampler(np.ones(len(counts)) if name == "uniform" else unigram, size, CPU)


def runs_by_size(train: Callable[[str, int], Result], sizes: Sizes) -> dict[str, partial[Result]]:
    """A run of `train(sampler, m)` for each sampler at each m."""
    return {
        f"{name}, m = {size}" if size else name: partial(train, name, size)
        for name, counts in sizes.items()
        for size in counts
    }


def plot_over_sizes(
    panels: Mapping[str, Iterable[Result]], measure: str, label: str, path: Path, scale: str
) -> None:
    """Draw the last `measure` of the runs of each panel over m: a curve a sampler, a line a full softmax.

    `scale`, "log" or "linear", is that of the measure.
    """
    points = sorted({run["m"] for runs in panels.values() for run in runs if run["m"]})
    lines: dict[str, dict[str, list[float]]] = {}
    for title, runs in panels.items():
        last = {(run["sampler"], run["m"]): run[measure][-1] for run in runs}
        curves = {
            name: [last.get((name, size), last.get((name, 0), math.nan)) for size in points]
            for name in sorted({name for name, _ in last}, key=lambda name: (name.startswith(EXACT), name))
        }
        lines[title] = curves
    plot_curves(lines, ("m", label), path, [float(point) for point in points], ("log", scale))
