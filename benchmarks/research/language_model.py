"""A recurrent language model on an excerpt of Shakespeare, trained by estimates of the softmax."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from benchmarks.research.estimators import Estimate, Result
from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores, signed_or_absolute
from turret.training.losses.catalog import full_softmax
from turret.training.randomness import seed_torch, stream
from turret.training.samplers.core.contract import DrawContext

Ids = NDArray[np.int64]
HELD_OUT, VALIDATED = 0.1, 5_000
SCORED_AT_ONCE = 1 << 23
# Adam under a half cosine to zero; batches of ROWS places in the text, STEPS words of each. The held-out
# words are scored CHECKS times in an epoch.
CHECKS, ROWS, STEPS, RATE = 3, 8, 16, 1e-2


@dataclass(frozen=True)
class Text:
    """Words by falling frequency, 0 to N - 1: `training` [T], and `held_out` [V] of the end."""

    vocabulary: int
    training: Ids
    held_out: Ids

    def counts(self) -> Ids:
        """How often each word is in the training part, [N]."""
        return np.bincount(self.training, minlength=self.vocabulary)

    def bigrams(self) -> tuple[Ids, Ids]:
        """Sorted pairs last * N + next of the training part, and their counts."""
        pairs, counts = np.unique(
            self.training[:-1] * self.vocabulary + self.training[1:], return_counts=True
        )
        return pairs, counts


@cache
def shakespeare(folder: Path, quick: bool) -> Text:
    """The last 110,000 lower-case words and signs; those beyond the first 9,999 are one word, the last.

    The vocabulary has the most frequent of the whole text. Where it has to be quick, a tenth of both.
    """
    vocabulary, length = (1_000, 12_000) if quick else (10_000, 110_000)
    text = (folder / "shakespeare" / "input.txt").read_text(encoding="utf-8")
    words = re.findall(r"[a-z']+|[^\sa-z']", text.lower())
    frequent = [word for word, _ in Counter(words).most_common(vocabulary - 1)]
    numbers = {word: row for row, word in enumerate(frequent)}
    ids = np.array([numbers.get(word, vocabulary - 1) for word in words[-length:]], np.int64)
    kept = round(len(ids) * (1.0 - HELD_OUT))
    return Text(vocabulary, ids[:kept], ids[kept : kept + VALIDATED])


class WordModel(nn.Module):
    """A gated recurrent unit over word vectors; a word's score is its inner product with the state.

    The state has a constant 1 behind, so the last column of `output` [N, D + 1] is a bias.
    """

    def __init__(self, vocabulary: int, width: int, absolute: bool = False) -> None:
        """Start from seed 0, with scores near zero."""
        super().__init__()
        seed_torch(0, "word model", 0)
        self.scoring = ScoringConfig(kind="dot", temperature=1.0, absolute=absolute)
        self.words = nn.Embedding(vocabulary, width)
        self.unit = nn.GRU(width, width, batch_first=True)
        self.output = nn.Parameter(0.1 * torch.randn(vocabulary, width + 1))

    def states(self, words: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """The states [R * T, D + 1] after the words [R, T], and the last of the unit itself [1, R, D]."""
        states, after = self.unit(self.words(words), before)
        return pad(states.flatten(0, 1), (0, 1), value=1.0), after

    def scores(self, states: Tensor, ids: Tensor) -> Tensor:
        """The scores [B, K] of words [K] or [B, K]."""
        # Products with all words, where the batch has drawn more than there are, are the fewer.
        if ids.dim() == 2 and ids.numel() > 4 * len(self.output):
            return cross_scores(states, self.output, self.scoring).gather(1, ids)
        return cross_scores(states, self.output[ids], self.scoring)

    def vectors(self, ids: Tensor) -> Tensor:
        """The scored vectors of words, without a gradient."""
        return self.output.detach()[ids]

    def losses(self, states: Tensor, words: Tensor, targets: Tensor, estimate: Estimate, step: int) -> Tensor:
        """The estimated loss [B] of the targets [B] after the words [B] that led to the states."""
        context = DrawContext(stream(0, "draw", step), words, self.vectors(targets), self.vectors)
        own = signed_or_absolute((states * self.output[targets]).sum(dim=1), self.scoring)
        return estimate.losses(states.detach(), targets, own, lambda ids: self.scores(states, ids), context)


def train(model: WordModel, text: Text, epochs: int, estimate: Estimate | None) -> Result:
    """The *full softmax* cross-entropy of the held-out words before training and at every check.

    None trains by the full softmax. All estimates see the same batches.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    steps = (len(text.training) - 1) // (ROWS * STEPS) * epochs
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    if estimate:
        estimate.sampler.refresh(model.output.detach())
    losses, count = [cross_entropy(model, text)], itertools.count(1)
    checked = {round(steps * place / (epochs * CHECKS)) for place in range(1, 1 + epochs * CHECKS)}
    for _ in range(epochs):
        before = None
        for words, targets in batches(text.training):
            optimiser.zero_grad()
            states, after = model.states(words, before)
            before, step = after.detach(), next(count)
            if estimate:
                loss = model.losses(states, words.flatten(), targets.flatten(), estimate, step)
            else:
                loss = full_softmax(cross_scores(states, model.output, model.scoring), targets.flatten())
            torch.autograd.backward(loss.mean())
            optimiser.step()
            falling.step()
            if estimate:
                estimate.sampler.update(model.vectors)
            if step in checked:
                losses.append(cross_entropy(model, text))
    return {
        "cross_entropy": losses,
        "text": "Shakespeare",
        "words": text.vocabulary,
        "training_words": len(text.training),
        "held_out_words": len(text.held_out),
        "width": model.words.embedding_dim,
        "epochs": epochs,
        "checks": CHECKS,
    }


def batches(ids: Ids) -> Iterator[tuple[Tensor, Tensor]]:
    """Words [R, T] and the words after them; a row of a batch goes on where that of the last one ended."""
    length = (len(ids) - 1) // ROWS
    words = torch.from_numpy(ids[: ROWS * length]).view(ROWS, length)
    targets = torch.from_numpy(ids[1 : ROWS * length + 1]).view(ROWS, length)
    for start in range(0, length // STEPS * STEPS, STEPS):
        part = slice(start, start + STEPS)
        yield words[:, part], targets[:, part]


@torch.no_grad()
def cross_entropy(model: WordModel, text: Text) -> float:
    """The mean full softmax cross-entropy of the held-out words, each after those before it, in nats."""
    ids = torch.from_numpy(text.held_out)
    states, _ = model.states(ids[None, :-1], None)
    block = max(1, SCORED_AT_ONCE // text.vocabulary)
    losses = [
        full_softmax(cross_scores(some, model.output, model.scoring), targets)
        for some, targets in zip(torch.split(states, block), torch.split(ids[1:], block), strict=True)
    ]
    return float(torch.cat(losses).mean())
