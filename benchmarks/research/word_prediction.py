"""Botev et al. 2017, figure 3: a recurrent language model, trained by each estimator.

The text is prepared as printed. The model reads a sentence from its start, and predicts each word and the
end; words have one vector for input and output. Of the article's S + S' draws of a batch, each word takes the
first S that are not itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from bm25s.stopwords import STOPWORDS_EN_PLUS
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from benchmarks.harness import Options
from benchmarks.plots import curves as plot_curves
from benchmarks.research.estimators import CPU, EXACT, STANDARD, Estimate, PaperFigure, Result, Results
from turret.training.losses.binary import negative_sampling
from turret.training.losses.catalog import full_softmax
from turret.training.losses.pairwise import ranking
from turret.training.losses.sampled import blackout, sampled_softmax, standard_importance, subset_softmax
from turret.training.objectives.contract import Loss
from turret.training.randomness import seed_torch, stream
from turret.training.samplers.core.contract import DrawContext
from turret.training.samplers.fixed.alias import unigram_weights
from turret.training.samplers.fixed.complement import SharedComplementSampler
from turret.training.samplers.fixed.popularity import PopularitySampler

Ids = NDArray[np.int64]
# The newest sentences of the text that are read: all curves take some hours of two cores.
SENTENCES, QUICK_SENTENCES, LONGEST, RAREST = 20_000, 1_000, 70, 4
_WORD = r"[a-z0-9à-ÿ']*[a-z0-9à-ÿ][a-z0-9à-ÿ']*"
WIDTH, HIDDEN, BATCH, EPOCHS, QUICK_EPOCHS = 100, 128, 128, 30, 1
CANDIDATES, SPARE, ALPHAS = 250, 10, (0.0, 0.75, 1.0)
# The rates of the article: the second where the first diverges. An epoch has .9 of the last one's.
RATES, DECAY = (0.05, 0.02), 0.9
CALM = 64  # batches whose sentences are sorted by length
SCORED_AT_ONCE = 1 << 23

LOSSES: dict[str, Loss] = {
    "complementary sum sampling": sampled_softmax,
    "BlackOut": blackout,
    "large-vocabulary importance": subset_softmax,
    "ranking": ranking,
    "negative sampling": negative_sampling,
    STANDARD: standard_importance,
}


@dataclass(frozen=True)
class Sentences:
    """Words by falling frequency, from 2 on: 0 is the start of a sentence, 1 its end.

    `words` [P] are those of all sentences, with starts and ends; a sentence is from `offsets` [S + 1] on.
    """

    vocabulary: int
    words: Ids
    offsets: Ids

    def counts(self) -> Ids:
        """How often each word is to be predicted: [C]."""
        counts = np.bincount(self.words, minlength=self.vocabulary)
        counts[0] = 0
        return counts

    def batches(self, random: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Padded words [B, T + 1] and their lengths [B]; sentences of a batch have similar lengths."""
        order, lengths = random.permutation(len(self.offsets) - 1), np.diff(self.offsets)
        for part in np.split(order, range(CALM * BATCH, len(order), CALM * BATCH)):
            by_length = part[np.argsort(lengths[part], kind="stable")]
            batches = np.split(by_length, range(BATCH, len(by_length), BATCH))
            for place in random.permutation(len(batches)):
                yield self._padded(batches[place])

    def _padded(self, sentences: Ids) -> tuple[Tensor, Tensor]:
        lengths = np.diff(self.offsets)[sentences]
        within = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        words = self.words[self.offsets[sentences][:, None] + within]
        return torch.from_numpy(words), torch.from_numpy(lengths)


@cache
def europarl(folder: Path, count: int) -> Sentences:
    """The newest `count` sentences in lower case, without stop words, punctuation and rare words."""
    table = pl.read_parquet(folder / "europarl-en" / "sentences.parquet").sort("day", "pos").tail(count)
    words = table.select(
        sentence=pl.int_range(pl.len()), word=pl.col("text").str.to_lowercase().str.extract_all(_WORD)
    ).explode("word", empty_as_null=True)
    words = words.drop_nulls().filter(~pl.col("word").is_in(list(STOPWORDS_EN_PLUS)))
    words = words.filter(pl.len().over("word") >= RAREST).filter(pl.len().over("sentence") <= LONGEST)
    frequent = words["word"].value_counts().sort("count", "word", descending=[True, False])
    rows = words.join(frequent.with_row_index("row", 2), on="word", maintain_order="left")["row"].to_numpy()
    sentence = words["sentence"].to_numpy()
    begins = np.flatnonzero(np.diff(sentence, prepend=-1))
    ends = np.append(begins[1:], len(rows))
    # At one place the end of a sentence comes before the start of the next.
    marks = np.tile([0, 1], len(begins))
    marked = np.insert(rows.astype(np.int64), np.stack([begins, ends], 1).ravel(), marks)
    offsets = np.append(0, ends + 2 * np.arange(1, len(begins) + 1))
    return Sentences(len(frequent) + 2, marked, offsets)


class WordModel(nn.Module):
    """A gated recurrent unit over word vectors; a word's score is w P h, without a constant."""

    def __init__(self, vocabulary: int) -> None:
        """Start as printed, from seed 0."""
        super().__init__()
        seed_torch(0, "word model", 0)
        self.words = nn.Parameter(torch.empty(vocabulary, WIDTH).uniform_(-0.1, 0.1))
        self.unit = nn.GRU(WIDTH, HIDDEN, batch_first=True)
        self.projection = nn.Linear(HIDDEN, WIDTH, bias=False)
        for parameter in (*self.unit.parameters(), *self.projection.parameters()):
            nn.init.uniform_(parameter, -0.005, 0.005)

    def forward(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The projected states [M, D] before each word of the sentences [B, T + 1], and these words [M]."""
        states, _ = self.unit(self.vectors(words[:, :-1]))
        real = torch.arange(words.shape[1] - 1) < lengths[:, None] - 1
        return self.projection(states[real]), words[:, 1:][real]

    def vectors(self, ids: Tensor) -> Tensor:
        """Word vectors [..., D], whose gradient has the rows of `ids` alone."""
        return embedding(ids, self.words, sparse=True)

    def scores(self, states: Tensor, ids: Tensor) -> Tensor:
        """The scores [M, K] of words [K]."""
        return states @ self.vectors(ids).T


def estimate_of(name: str, text: Sentences, alpha: float) -> Estimate:
    """An estimator over draws by frequency^alpha that a batch shares.

    BlackOut divides the word's own term by its q too, so its q is that of all words, and hits are left out.
    """
    weights = unigram_weights(text.counts(), alpha, added=0.0)
    if name in (STANDARD, "BlackOut"):
        sampler = PopularitySampler(weights, CANDIDATES, CPU)
        return Estimate(LOSSES[name], sampler, keeps_hits=name == STANDARD)
    return Estimate(LOSSES[name], SharedComplementSampler(weights, CANDIDATES, SPARE, CPU))


def trained(folder: Path, quick: bool, name: str, alpha: float, rate: float) -> Result:
    """The exact training log likelihood of a word, before the training and after each epoch.

    The gradient is that of the sum over a sentence's words, meaned over the batch. A training ends where it
    diverges: where a word is likelier before it.
    """
    text = europarl(folder, QUICK_SENTENCES if quick else SENTENCES)
    model, epochs = WordModel(text.vocabulary), QUICK_EPOCHS if quick else EPOCHS
    estimate = None if name == EXACT else estimate_of(name, text, alpha)
    likelihoods, random = [log_likelihood(model, text)], stream(0, "draw", 0)
    for epoch in range(epochs):
        optimiser = torch.optim.SGD(model.parameters(), rate * DECAY**epoch)
        for words, lengths in text.batches(stream(0, "order", epoch)):
            states, targets = model(words, lengths)
            if estimate is None:
                losses = full_softmax(states @ model.words.T, targets)
            else:
                own = (states * model.vectors(targets)).sum(dim=1)
                context = DrawContext(random, targets, states.detach(), model.words.detach().__getitem__)
                losses = estimate.losses(
                    states.detach(), targets, own, partial(model.scores, states), context
                )
            optimiser.zero_grad()
            torch.autograd.backward(losses.sum() / len(words))
            optimiser.step()
        likelihoods.append(log_likelihood(model, text))
        if not likelihoods[-1] >= 2 * likelihoods[0]:
            likelihoods[-1] = 2 * likelihoods[0]
            break
    return {
        "estimator": name,
        "alpha": None if name == EXACT else alpha,
        "rate": rate,
        "log_likelihood": likelihoods,
        "diverged": len(likelihoods) <= epochs,
        "words": text.vocabulary,
        "training_words": int(text.counts().sum()),
        "sentences": len(text.offsets) - 1,
    }


def converging(folder: Path, quick: bool, name: str, alpha: float) -> Result:
    """A training at the first rate; at the second where that diverges."""
    first = trained(folder, quick, name, alpha, RATES[0])
    return trained(folder, quick, name, alpha, RATES[1]) if first["diverged"] else first


@torch.no_grad()
def log_likelihood(model: WordModel, text: Sentences) -> float:
    """The mean over all words of the text, of the full softmax."""
    total, count, block = 0.0, 0, max(1, SCORED_AT_ONCE // text.vocabulary)
    for words, lengths in text.batches(stream(0, "measured", 0)):
        states, targets = model(words, lengths)
        for some, own in zip(torch.split(states, block), torch.split(targets, block), strict=True):
            total -= float(full_softmax(some @ model.words.T, own).sum())
        count += len(targets)
    return total / count


def runs(options: Options) -> dict[str, partial[Result]]:
    """A training for each estimator and power of the frequency, and the exact one."""
    make = partial(partial, converging, options.data, options.quick)
    made = {EXACT: make(EXACT, 0.0)}
    return made | {f"alpha = {alpha:g}: {name}": make(name, alpha) for alpha in ALPHAS for name in LOSSES}


def plot(results: Results, path: Path) -> None:
    """A panel an alpha."""
    panels = {
        f"alpha = {alpha:g}": {
            one["estimator"]: one["log_likelihood"][1:]
            for one in results.values()
            if one["alpha"] in (None, alpha)
        }
        for alpha in ALPHAS
    }
    points = [float(epoch) for epoch in range(1, EPOCHS + 1)]
    plot_curves(panels, ("epoch", "training log likelihood of a word"), path, points)


FIGURE = PaperFigure("word_prediction", runs, plot)
