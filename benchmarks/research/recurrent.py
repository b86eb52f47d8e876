"""Botev et al. 2017, figure 3: a recurrent language model by each estimator, S = 250, alpha .75 and 1."""

import math
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from benchmarks.plots import curves as plot_curves
from benchmarks.research.language_model import CPU, Estimate, Schedule, Text, WordModel, text_of, train
from benchmarks.research.runs import PaperFigure, Result, Results, Scale, by_setting, key_of
from benchmarks.research.softmax_regression import EXACT, estimators
from turret.training.samplers.fixed.alias import unigram_weights

ALPHAS = (0.75, 1.0)


@dataclass(frozen=True)
class Size:
    """The model and its training."""

    words: int
    length: int
    width: int
    candidates: int
    schedule: Schedule


FULL_SIZE = Size(10_000, 110_000, 24, 250, Schedule(epochs=2))
QUICK_SIZE = Size(1_000, 12_000, 8, 25, Schedule(epochs=1))


@cache
def _text(folder: Path, words: int, length: int) -> Text:
    return text_of(folder, words, length)


def runs(scale: Scale) -> dict[str, partial[Result]]:
    """A training for each alpha and estimator, and the exact one."""
    size = QUICK_SIZE if scale.quick else FULL_SIZE
    text = _text(scale.data, size.words, size.length)
    made = {EXACT: partial(trained, text, size, EXACT, 0.0)}
    return made | {
        key_of(f"alpha = {alpha:g}", name): partial(trained, text, size, name, alpha)
        for alpha in ALPHAS
        for name in estimators(size.words)
    }


def trained(text: Text, size: Size, name: str, alpha: float) -> Result:
    """Train by one estimator over draws by frequency^alpha."""
    model = WordModel(text.vocabulary, size.width)
    with torch.no_grad():
        # Scores begin as log probabilities, as noise contrastive estimation wants them to be.
        model.output[:, -1] = -math.log(text.vocabulary)
    estimate = None
    if name != EXACT:
        wanted = estimators(text.vocabulary)[name]
        sampler = wanted.sampler(unigram_weights(text.counts(), alpha), size.candidates, CPU)
        estimate = Estimate(wanted.loss, sampler, wanted.keeps_hits)
    return {
        "cross_entropy": train(model, text, size.schedule, estimate),
        "text": text.name,
        "words": text.vocabulary,
        "training_words": len(text.training),
        "held_out_words": len(text.held_out),
        "width": size.width,
        "candidates": size.candidates,
        **vars(size.schedule),
    }


def plot(results: Results, path: Path) -> None:
    """A panel an alpha."""
    exact = {EXACT: results[EXACT]["cross_entropy"][1:]}
    panels = {
        alpha: exact | {name: curve[1:] for name, curve in made.items()}
        for alpha, made in by_setting(results, "cross_entropy").items()
    }
    checks = results[EXACT]["checks"]
    points = [(place + 1) / checks for place in range(len(exact[EXACT]))]
    plot_curves(panels, ("epoch", "held-out cross-entropy, nats"), path, points)


FIGURE = PaperFigure("recurrent", runs, plot)
