"""The other positives of the batch as candidates; their vectors are computed anyway."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from turret.training.samplers.core.contract import (
    CountingSampler,
    DrawContext,
    Sampler,
    State,
)
from turret.training.samplers.core.draw import Draw, check_positives, without_accidental_hits
from turret.training.samplers.core.settings import SamplerContext
from turret.training.samplers.from_batch.frequency import Frequency, FrequencySettings, shares


class InBatchConfig(FrequencySettings):
    """The other positives of the batch; `unique` keeps one candidate of each item."""

    mixable: ClassVar[bool] = True
    variants = (("", {}), ("unique", {"unique": True}))

    kind: Literal["in_batch"] = "in_batch"
    unique: bool = False

    @property
    def fixed_size(self) -> bool:
        """Not where repeated positives are one candidate."""
        return not self.unique

    @property
    def begins_with_positives(self) -> bool:
        """Unless repeated positives are one candidate."""
        return not self.unique

    @property
    def needs_other_examples(self) -> bool:
        """Always: an example's own positive is masked."""
        return True

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        return InBatchSampler(self.frequency(context), context.item_count, self.unique)


class InBatchSampler(CountingSampler):
    """K = B candidates: the positives of the batch, item i expected B p_i times among them.

    Popular items are drawn as often as they are positives; without the correction by their count the
    loss pushes them down (Yi et al. 2019). An item that several examples have as their positive is as many
    candidates; with `unique` it is one, expected 1 - (1 - p_i)^B times: the probability that it is among B
    positives at all.

    The counts are those of the whole batch, the example's own positive included, as the corrected softmax
    has it in its sum. An example meets only the other B - 1, so that where the positive is kept as it is
    (`sampled_softmax`) the sum of the others falls short by one part in B.

    With several processes, the candidates are the positives of all of them, and B counts all.
    """

    draws_batch = True

    def __init__(self, frequency: Frequency, item_count: int, unique: bool = False) -> None:
        self.frequency = frequency
        self.item_count = item_count
        self.unique = unique
        # The examples of other processes in the last draw.
        self._others = 0

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use the positives [B] as the draw of every example; its own item is masked.

        Raises TrainingError for a positive outside the catalog, or one that the frequencies can't correct.
        """
        batch = context.gathered
        every = positives if batch is None else batch.positives
        check_positives(every, self.item_count)
        self.frequency.observe(every)
        self._others = len(every) - len(positives)
        own = slice(0, len(every)) if batch is None else slice(batch.first, batch.first + batch.own)
        ids, firsts, held = _distinct(every, own) if self.unique else (every, None, _held(every, own))
        stored = None
        if batch is not None:
            stored = batch.vectors if firsts is None else batch.vectors[firsts]
        return Draw(
            ids=ids,
            log_count=self.log_expected(query, positives, ids),
            positive_log_count=self.log_expected(query, positives, positives),
            valid=without_accidental_hits(ids, positives),
            held=held,
            stored=stored,
        )

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(B p) of `ids`, or with `unique` log(1 - (1 - p)^B)."""
        log_share, size = self.frequency.log_share(ids), len(positives) + self._others
        return log_inclusion(log_share, size) if self.unique else math.log(max(size, 1)) + log_share

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Normalised p [N], for each of the B queries: [B, N]."""
        return shares(self.frequency, self.item_count, query.device).expand(len(query), -1)

    def state(self) -> State:
        """The state of the frequencies."""
        return self.frequency.state()

    def restore(self, state: State) -> None:
        """Restore a `state`."""
        self.frequency.restore(state)


def _held(positives: Tensor, own: slice) -> tuple[Tensor, Tensor]:
    """Each example of the slice `own` of the batch, and its column."""
    columns = torch.arange(own.start, own.stop, device=positives.device)
    return columns - own.start, columns


def _distinct(positives: Tensor, own: slice) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The distinct positives, where each is first, and which of them only one example of `own` has.

    The latter as the example and the column.
    """
    ids, columns, counts = torch.unique(positives, return_inverse=True, return_counts=True)
    places = torch.arange(len(positives), device=positives.device)
    firsts = places.new_full((len(ids),), len(positives)).scatter_reduce(0, columns, places, "amin")
    alone = (counts[columns[own]] == 1).nonzero()[:, 0]
    return ids, firsts, (alone, columns[own][alone])


def log_inclusion(log_share: Tensor, size: int) -> Tensor:
    """log(1 - (1 - p)^size): how likely an item of log share `log_share` [...] is among `size` at all.

    Neither power is formed: for a rare item 1 - p rounds to one, and the log of the rest to minus infinity.
    """
    absent = size * torch.log1p(-log_share.exp())
    return (-torch.expm1(absent)).log()
