"""Blanc & Rendle 2018, figures 2 to 4: a language model of the Penn Treebank by each sampler and each m.

The model is the regularized LSTM of Zaremba et al. 2014 in its medium form, with the article's 200 units. The
39 epochs of all curves would take a week of two cores: there are fewer, and the rate falls faster.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from benchmarks.harness import Options
from benchmarks.plots import curves as plot_curves
from benchmarks.research.estimators import EXACT, Estimate, PaperFigure, Result, Results
from benchmarks.research.sampled_classes import (
    ABSOLUTE,
    EXACT_ABSOLUTE,
    Ids,
    Sizes,
    plot_over_sizes,
    runs_by_size,
    sampler_of,
)
from turret.tower.config import ScoringConfig
from turret.tower.towers.model import cross_scores, signed_or_absolute
from turret.training.losses.catalog import full_softmax
from turret.training.losses.sampled import sampled_softmax
from turret.training.randomness import seed_torch, stream
from turret.training.samplers.core.contract import DrawContext

UNITS, LAYERS, DROPOUT, RANGE, LONGEST_GRADIENT = 200, 2, 0.5, 0.05, 5.0
ROWS, STEPS = 20, 35
# The rate of an epoch is half of the last one's from the fifth on.
EPOCHS, STEADY, FALL = 8, 4, 0.5
QUICK_EPOCHS, QUICK_WORDS = 1, 8_000
SCORED_AT_ONCE = 1 << 23
SIZES: Sizes = {
    EXACT: (0,),
    EXACT_ABSOLUTE: (0,),
    "uniform": (10, 40, 160),
    "unigram": (40,),
    "bigram": (40,),
    "quadratic": (10, 40),
    "quartic": (40,),
    "softmax": (10, 40),
}
FIXED = 40  # m of the curves by sampler


@dataclass(frozen=True)
class Text:
    """Words by falling frequency, 0 to N - 1: `training` [T], and `held_out` [V]."""

    vocabulary: int
    training: Ids
    held_out: Ids

    def counts(self) -> Ids:
        """How often each word is in the training part, [N]."""
        return np.bincount(self.training, minlength=self.vocabulary)

    def pairs(self) -> tuple[Ids, Ids]:
        """Sorted pairs last * N + next of the training part, and their counts."""
        pairs = self.training[:-1] * self.vocabulary + self.training[1:]
        distinct, counts = np.unique(pairs, return_counts=True)
        return distinct, counts


@cache
def penn_treebank(folder: Path, quick: bool) -> Text:
    """The words with ends of sentences, to train on and to test; the first ones where it has to be quick."""
    table = pl.read_parquet(folder / "ptb" / "sentences.parquet")
    words = table.select("split", word=pl.concat_str("sentence", pl.lit(" <eos>")).str.split(" ")).explode(
        "word"
    )
    words = words.filter(pl.col("word") != "")
    frequent = words.filter(pl.col("split") == "train")["word"].value_counts()
    frequent = frequent.sort("count", "word", descending=[True, False]).with_row_index("row")
    words = words.join(frequent, on="word", maintain_order="left")
    read = slice(QUICK_WORDS if quick else None)
    train, test = (
        words.filter(pl.col("split") == split)["row"].to_numpy().astype(np.int64)[read]
        for split in ("train", "test")
    )
    return Text(len(frequent), train, test)


class LanguageModel(nn.Module):
    """An LSTM over word vectors; a word's score is the inner product of its output vector with the state.

    The state has a constant 1 behind, so the last column of `output` [N, D + 1] is a bias.
    """

    def __init__(self, vocabulary: int, absolute: bool) -> None:
        """Start from seed 0."""
        super().__init__()
        seed_torch(0, "word model", 0)
        self.scoring = ScoringConfig(kind="dot", temperature=1.0, absolute=absolute)
        self.words = nn.Embedding(vocabulary, UNITS)
        self.unit = nn.LSTM(UNITS, UNITS, LAYERS, dropout=DROPOUT)
        self.dropout = nn.Dropout(DROPOUT)
        self.output = nn.Parameter(torch.empty(vocabulary, UNITS + 1))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -RANGE, RANGE)

    def states(self, words: Tensor, before: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The states [T * R, D + 1] after the words [T, R], and the last ones of the unit."""
        states, after = self.unit(self.dropout(self.words(words)), before)
        return pad(self.dropout(states).flatten(0, 1), (0, 1), value=1.0), after

    def scores(self, states: Tensor, ids: Tensor) -> Tensor:
        """The scores [B, K] of words [K] or [B, K]."""
        # Products with all words, where the batch has drawn more than there are, are the fewer.
        if ids.dim() == 2 and ids.numel() > 4 * len(self.output):
            return cross_scores(states, self.output, self.scoring).gather(1, ids)
        return cross_scores(states, self.output[ids], self.scoring)

    def vectors(self, ids: Tensor) -> Tensor:
        """The scored vectors of words, without a gradient."""
        return self.output.detach()[ids]


def batches(ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Words [T, R] and those after them; a row of a batch goes on where that of the last one ended."""
    length = (len(ids) - 1) // ROWS
    words = torch.from_numpy(ids[: ROWS * length]).view(ROWS, length).T
    targets = torch.from_numpy(ids[1 : ROWS * length + 1]).view(ROWS, length).T
    for start in range(0, length, STEPS):
        yield words[start : start + STEPS], targets[start : start + STEPS].flatten()


def trained(folder: Path, quick: bool, kind: str, size: int) -> Result:
    """The perplexity of the test text after each epoch, by the softmax of all words; m = 0 trains by it."""
    text = penn_treebank(folder, quick)
    model = LanguageModel(text.vocabulary, kind in ABSOLUTE)
    sampler = sampler_of(kind, size, text.counts(), text.pairs()) if size else None
    if sampler is not None:
        sampler.refresh(model.output.detach())
    random, perplexities = stream(0, "draw", 0), list[float]()
    for epoch in range(QUICK_EPOCHS if quick else EPOCHS):
        optimiser = torch.optim.SGD(model.parameters(), FALL ** max(0, epoch + 1 - STEADY))
        before: tuple[Tensor, ...] | None = None
        model.train()
        for words, targets in batches(text.training):
            states, after = model.states(words, before)
            before = tuple(state.detach() for state in after)
            if sampler is None:
                losses = full_softmax(cross_scores(states, model.output, model.scoring), targets)
            else:
                context = DrawContext(random, words.flatten(), model.vectors(targets), model.vectors)
                own = signed_or_absolute((states * model.output[targets]).sum(dim=1), model.scoring)
                estimate = Estimate(sampled_softmax, sampler)
                losses = estimate.losses(
                    states.detach(), targets, own, partial(model.scores, states), context
                )
            optimiser.zero_grad()
            torch.autograd.backward(losses.sum() / ROWS)
            nn.utils.clip_grad_norm_(model.parameters(), LONGEST_GRADIENT)
            optimiser.step()
            if sampler is not None:
                sampler.update(model.vectors)
        perplexities.append(perplexity(model, text.held_out))
    return {
        "sampler": kind,
        "m": size,
        "perplexity": perplexities,
        "words": text.vocabulary,
        "training_words": len(text.training),
    }


@torch.no_grad()
def perplexity(model: LanguageModel, ids: Ids) -> float:
    """exp of the mean cross-entropy of a text, each word after those before it."""
    model.eval()
    total, count, before = 0.0, 0, None
    block = max(1, SCORED_AT_ONCE // len(model.output))
    for words, targets in batches(ids):
        states, before = model.states(words, before)
        for some, own in zip(torch.split(states, block), torch.split(targets, block), strict=True):
            total += float(full_softmax(cross_scores(some, model.output, model.scoring), own).sum())
        count += len(targets)
    return math.exp(min(total / count, 50.0))


def runs(options: Options) -> dict[str, partial[Result]]:
    """Both full softmaxes, and each sampler at each m."""
    return runs_by_size(partial(trained, options.data, options.quick), SIZES)


def plot_final(results: Results, path: Path) -> None:
    """The last perplexity over m, a curve a sampler."""
    panels = {"Penn Treebank": results.values()}
    plot_over_sizes(panels, "perplexity", "perplexity of the test text", path, "log")


def _plot_epochs(panels: Mapping[str, Mapping[str, list[float]]], path: Path) -> None:
    points = [float(epoch) for epoch in range(1, EPOCHS + 1)]
    plot_curves(panels, ("epoch", "perplexity of the test text"), path, points, ("linear", "log"))


def plot_by_size(results: Results, path: Path) -> None:
    """The perplexity over epochs: a panel a sampler, a curve an m."""
    exact = {EXACT: results[EXACT]["perplexity"]}
    panels = {
        name: exact
        | {f"m = {run['m']}": run["perplexity"] for run in results.values() if run["sampler"] == name}
        for name, sizes in SIZES.items()
        if len(sizes) > 1
    }
    _plot_epochs(panels, path)


def plot_by_sampler(results: Results, path: Path) -> None:
    """The perplexity over epochs, a curve a sampler, all with the same m."""
    chosen = {name: run for name, run in results.items() if run["m"] in (0, FIXED)}
    lines = {name: run["perplexity"] for name, run in chosen.items()}
    _plot_epochs({"Penn Treebank": lines}, path)


FINAL = PaperFigure("penn_treebank", runs, plot_final)
BY_SIZE = PaperFigure("penn_treebank", runs, plot_by_size)
BY_SAMPLER = PaperFigure("penn_treebank", runs, plot_by_sampler)
