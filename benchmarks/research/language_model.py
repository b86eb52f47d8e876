"""Texts as ids of words: an excerpt of Shakespeare, and a generated one of any vocabulary."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from turret.tower.config import ScoringConfig
from turret.tower.towers.scoring import cross_scores, signed_or_absolute
from turret.training.losses.catalog import full_softmax
from turret.training.objectives.contract import Loss
from turret.training.randomness import seed_torch, stream
from turret.training.samplers.core.contract import DrawContext, Sampler

Ids = NDArray[np.int64]
TOPICS = 20
# The chance that the next word is of the topic that follows that of the last.
FOLLOWS = 0.8
HELD_OUT = 0.1
VALIDATED = 5_000


@dataclass(frozen=True)
class Text:
    """Words by falling frequency, 0 to N - 1: `training` [T], and `held_out` [V] of the end."""

    name: str
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


def text_of(folder: Path, vocabulary: int, length: int) -> Text:
    """The last words of Shakespeare's where `folder` has the text, or else generated ones."""
    path = folder / "shakespeare" / "input.txt"
    if path.exists():
        return shakespeare(path.read_text(encoding="utf-8"), vocabulary, length)
    return generated(vocabulary, length, seed=0)


def shakespeare(text: str, vocabulary: int, length: int) -> Text:
    """The last `length` lower-case words and signs; those beyond the vocabulary are one word, the last.

    The vocabulary has the most frequent of the whole text.
    """
    words = re.findall(r"[a-z']+|[^\sa-z']", text.lower())
    frequent = [word for word, _ in Counter(words).most_common(vocabulary - 1)]
    ids = {word: row for row, word in enumerate(frequent)}
    read = [ids.get(word, vocabulary - 1) for word in words[-length:]]
    return _split("Shakespeare", vocabulary, np.array(read, np.int64))


def generated(vocabulary: int, length: int, seed: int) -> Text:
    """Words of topics that follow one another: in a topic by Zipf's law, and at times from any topic.

    Word i is of topic i mod T, and the i // T-th of it, so that low ids are frequent in all topics.
    """
    random = stream(seed, "text", vocabulary)
    topics = min(TOPICS, vocabulary)
    # A run of topics starts anywhere, and goes on one by one.
    starts = random.random(length) >= FOLLOWS
    starts[0] = True
    first = np.flatnonzero(starts)
    begun = np.repeat(first, np.diff(np.append(first, length)))
    topic = (random.integers(topics, size=length)[begun] + np.arange(length) - begun) % topics
    sizes = vocabulary // topics
    shares = 1.0 / np.arange(1, sizes + 1)
    place = np.searchsorted(np.cumsum(shares / shares.sum()), random.random(length))
    ids = np.minimum(place, sizes - 1) * topics + topic
    return _split("generated", vocabulary, ids.astype(np.int64))


def _split(name: str, vocabulary: int, ids: Ids) -> Text:
    kept = round(len(ids) * (1.0 - HELD_OUT))
    return Text(name, vocabulary, ids[:kept], ids[kept : kept + VALIDATED])


CPU = torch.device("cpu")
SCORED_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Schedule:
    """Adam under a half cosine to zero; batches of `rows` places in the text, `steps` words of each.

    The held-out words are scored `checks` times in an epoch.
    """

    epochs: int
    checks: int = 3
    rows: int = 8
    steps: int = 16
    rate: float = 1e-2

    def batches(self, text: Text) -> int:
        """Steps of the optimiser in an epoch."""
        return (len(text.training) - 1) // (self.rows * self.steps)


@dataclass(frozen=True)
class Estimate:
    """The loss over a sampler's draw. `keeps_hits`: a drawn word of the example itself counts."""

    loss: Loss
    sampler: Sampler
    keeps_hits: bool = False


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
        if ids.dim() == 1:
            return cross_scores(states, self.output[ids], self.scoring)
        # Products with all words, where the batch has drawn more than there are, are the fewer.
        if ids.numel() > 4 * len(self.output):
            return cross_scores(states, self.output, self.scoring).gather(1, ids)
        return cross_scores(states, self.output[ids], self.scoring)

    def vectors(self, ids: Tensor) -> Tensor:
        """The scored vectors of words, without a gradient."""
        return self.output.detach()[ids]


def train(model: WordModel, text: Text, schedule: Schedule, estimate: Estimate | None) -> list[float]:
    """The *full softmax* cross-entropy of the held-out words before training and at every check.

    None trains by the full softmax. All estimates see the same batches.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=schedule.rate, fused=True)
    steps = schedule.batches(text) * schedule.epochs
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    if estimate:
        estimate.sampler.refresh(model.output.detach())
    losses, count = [cross_entropy(model, text)], itertools.count(1)
    checked = {
        round(steps * place / (schedule.epochs * schedule.checks))
        for place in range(1, 1 + schedule.epochs * schedule.checks)
    }
    for _ in range(schedule.epochs):
        before = None
        for words, targets in batches(text.training, schedule):
            optimiser.zero_grad()
            states, after = model.states(words, before)
            before = after.detach()
            step = next(count)
            loss = _losses(model, states, words.flatten(), targets.flatten(), estimate, step)
            torch.autograd.backward(loss.mean())
            optimiser.step()
            falling.step()
            if estimate:
                estimate.sampler.update(model.vectors)
            if step in checked:
                losses.append(cross_entropy(model, text))
    return losses


def _losses(
    model: WordModel,
    states: Tensor,
    words: Tensor,
    targets: Tensor,
    estimate: Estimate | None,
    step: int,
) -> Tensor:
    if estimate is None:
        return full_softmax(cross_scores(states, model.output, model.scoring), targets)
    context = DrawContext(stream(0, "draw", step), words, model.vectors(targets), model.vectors)
    draw = estimate.sampler.draw(states.detach(), targets, context)
    draw = draw.keeping_hits(targets) if estimate.keeps_hits else draw
    own = signed_or_absolute((states * model.output[targets]).sum(dim=1), model.scoring)
    return estimate.loss(own, model.scores(states, draw.ids), draw)


def batches(ids: Ids, schedule: Schedule) -> Iterator[tuple[Tensor, Tensor]]:
    """Words [R, T] and the words after them; a row of a batch goes on where that of the last one ended."""
    length = (len(ids) - 1) // schedule.rows
    used = length // schedule.steps * schedule.steps
    words = torch.from_numpy(ids[: schedule.rows * length]).view(schedule.rows, length)
    targets = torch.from_numpy(ids[1 : schedule.rows * length + 1]).view(schedule.rows, length)
    for start in range(0, used, schedule.steps):
        part = slice(start, start + schedule.steps)
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
