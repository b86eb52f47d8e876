"""Candidates by how often they follow the last item read."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw, drawn_by_example
from turret.training.samplers.core.settings import BuildContext, Negatives, Power, SamplerSettings
from turret.training.samplers.fixed.alias import AliasTable, Weights, unigram_weights

# The counts that the unigram adds to those of an item's followers.
BACKOFF = 10.0


class BigramConfig(SamplerSettings):
    """Items are drawn as they follow the last item, with ten counts added by the unigram."""

    kind: Literal["bigram"] = "bigram"
    negatives: Negatives = 64
    alpha: Power = 1.0

    def build(self, context: BuildContext) -> Sampler:
        weights = unigram_weights(context.statistics.item_counts(), self.alpha)
        pairs, counts = context.statistics.bigram_counts()
        return BigramSampler(pairs, counts, weights, self.negatives, context.device)


class BigramSampler(Sampler):
    """K candidates an example, drawn with replacement from (c(last, i) + 10 u_i) / (c(last) + 10).

    c counts how often i came right after the last item that the example has read, c(last) how often anything
    did, and u is the unigram: the fewer events follow an item, the more of the draw is the unigram's
    (interpolation as with Dirichlet smoothing, MacKay & Peto 1995).

    Sorted pairs and cumulated counts take 16 bytes each; a draw and a look-up are a binary search.
    """

    def __init__(
        self,
        pairs: NDArray[np.int64],
        counts: NDArray[np.int64],
        unigram: Weights,
        negatives: int,
        device: torch.device,
    ) -> None:
        """Take sorted [P] pairs last * N + next with [P] counts, and [N] positive unigram weights."""
        self.item_count = len(unigram)
        self.negatives = negatives
        self.table = AliasTable(unigram)
        self.unigram = torch.from_numpy(unigram / unigram.sum()).to(device)
        # A sentinel pair behind all others ends every search within the arrays.
        pairs, counts = np.append(pairs, self.item_count**2), np.append(counts, 0)
        self.pairs = torch.from_numpy(pairs).to(device)
        # How many events are of the pairs before each: an item's followers are a range of events.
        self.events = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])).to(device)
        firsts = np.searchsorted(pairs, np.arange(self.item_count + 1) * self.item_count)
        self.first_events = self.events[torch.from_numpy(firsts).to(device)]

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Draw [B, K] ids by the last item that each example has read."""
        last, shape = context.last_items, (len(positives), self.negatives)
        uniform = torch.from_numpy(context.random.random(shape)).to(positives.device)
        unigram = self.table.draw(uniform.numel(), context.random).reshape(shape)
        first, followed = self._events_after(last[:, None])
        # One number decides between the unigram and the events, and then among the events.
        position = uniform * (followed + BACKOFF)
        follower = self._item_of(first + torch.minimum(position.long(), followed - 1))
        ids = torch.where(position < followed, follower, torch.from_numpy(unigram).to(positives.device))
        return drawn_by_example(ids, self._log_q(last[:, None], ids), self._log_q(last, positives), positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """q [B, N] after the last items of `context`. Raises TrainingError without it."""
        if context is None:
            raise TrainingError(
                "objective.sampler.kind = 'bigram': the proposal depends on the last item read; pass the "
                "context of the draw."
            )
        rows = torch.arange(self.item_count, device=query.device)
        return self._log_q(context.last_items[:, None], rows).exp()

    def _events_after(self, last: Tensor) -> tuple[Tensor, Tensor]:
        """The first of the events after each of `last` [...], and how many there are: c(last)."""
        first = self.first_events[last]
        return first, self.first_events[last + 1] - first

    def _item_of(self, event: Tensor) -> Tensor:
        """The item that came in each `event` [...]."""
        position = torch.searchsorted(self.events, event, right=True) - 1
        return self.pairs[position.clamp(0, len(self.pairs) - 1)] % self.item_count

    def _log_q(self, last: Tensor, ids: Tensor) -> Tensor:
        """The log probabilities of `ids` after `last`, shapes that fit each other."""
        pair = last * self.item_count + ids
        position = torch.searchsorted(self.pairs, pair)
        count = torch.where(
            self.pairs[position] == pair, self.events[position + 1] - self.events[position], 0
        )
        _, followed = self._events_after(last)
        q = (count + BACKOFF * self.unigram[ids]) / (followed + BACKOFF)
        return q.log().float()
