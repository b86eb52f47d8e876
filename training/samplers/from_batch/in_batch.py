"""Candidates from the batch (Yi et al. 2019), from earlier batches (Wang et al. 2021), and from the data."""

import math
from abc import ABC
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from turret.training.errors import TrainingError
from turret.training.samplers.core.contract import (
    CountingSampler,
    Draw,
    DrawContext,
    Sampler,
    State,
    part_of,
)
from turret.training.samplers.core.settings import BuildContext, SamplerSettings
from turret.training.samplers.from_batch.frequency import Frequency, FrequencySettings


class InBatchConfig(FrequencySettings):
    """The other positives of the batch.

    Args:
        unique: whether an item that several examples have as their positive is one candidate.
        frequencies, streaming_rate: see `FrequencySettings`.

    Draws:
        int64 [B], shared by the batch, the positives of all its examples; with `unique` the different ones.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.in_batch().build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids, draw.valid[0]
        (tensor([5, 6]), tensor([False,  True]))
    """

    mixable: ClassVar[bool] = True
    # An example's own positive is masked.
    needs_other_examples: ClassVar[bool] = True

    kind: Literal["in_batch"] = "in_batch"
    unique: bool = False

    @property
    def fixed_size(self) -> bool:
        """False where repeated positives are one candidate."""
        return not self.unique

    def build(self, context: BuildContext) -> Sampler:
        return InBatchSampler(self.frequency(context), context.item_count, self.unique)


class BatchSampler(CountingSampler, ABC):
    """A sampler whose candidates are positives of this batch, of all processes, or of earlier batches."""

    draws_batch = True

    def __init__(self, frequency: Frequency, item_count: int) -> None:
        self.frequency = frequency
        self.item_count = item_count

    def _observed(self, positives: Tensor, context: DrawContext) -> Tensor:
        """The positives of all processes [A], which the frequencies have counted."""
        gathered = positives if context.gathered is None else context.gathered.positives
        self.frequency.observe(gathered)
        return gathered

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Normalised p [N], for each of the B queries: [B, N]."""
        share = self.frequency.log_share(torch.arange(self.item_count, device=query.device)).exp()
        return (share / share.sum()).expand(len(query), -1)

    def state(self) -> State:
        return {f"frequency.{name}": tensor for name, tensor in self.frequency.state().items()}

    def restore(self, state: State) -> None:
        self.frequency.restore(part_of(state, "frequency"))


class InBatchSampler(BatchSampler):
    """K = B candidates: the positives of the batch, item i expected B p_i times among them.

    An item that several examples have as their positive is as many candidates; with `unique` it is one
    candidate, expected 1 - (1 - p_i)^B times: the probability that it is among B positives at all.

    The counts are those of the whole batch, the example's own positive included, as the corrected softmax
    has it in its sum. An example meets only the other B - 1, so that where the positive is kept as it is
    (`sampled_softmax`) the sum of the others falls short by one part in B.

    With several processes, the candidates are the positives of all of them, and B counts all.
    """

    def __init__(self, frequency: Frequency, item_count: int, unique: bool = False) -> None:
        super().__init__(frequency, item_count)
        self.unique = unique
        # The number of examples of other processes in the last draw.
        self._others = 0

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use the positives [B] as the draw of every example; its own item is masked.

        Raises TrainingError for a positive that the frequencies can't correct.
        """
        batch = context.gathered
        gathered = self._observed(positives, context)
        self._others = len(gathered) - len(positives)
        local = slice(0, len(gathered)) if batch is None else slice(batch.first, batch.first + batch.own)
        ids, firsts, held = (
            _distinct(gathered, local) if self.unique else (gathered, None, _held(gathered, local))
        )
        stored = None
        if batch is not None:
            stored = batch.vectors if firsts is None else batch.vectors[firsts]
        return self.counted(query, positives, ids, held, stored)

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(B p) of `ids`, or with `unique` log(1 - (1 - p)^B)."""
        log_share, size = self.frequency.log_share(ids), len(positives) + self._others
        return log_inclusion(log_share, size) if self.unique else math.log(max(size, 1)) + log_share


def _held(positives: Tensor, local: slice) -> tuple[Tensor, Tensor]:
    """The examples of the slice `local` of the batch, and their columns."""
    columns = torch.arange(local.start, local.stop, device=positives.device)
    return columns - local.start, columns


def _distinct(positives: Tensor, local: slice) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The distinct positives, the first position of each, and those that one example of `local` alone has.

    The last are given as the example and the column.
    """
    ids, columns, counts = torch.unique(positives, return_inverse=True, return_counts=True)
    places = torch.arange(len(positives), device=positives.device)
    firsts = places.new_full((len(ids),), len(positives)).scatter_reduce(0, columns, places, "amin")
    alone = (counts[columns[local]] == 1).nonzero()[:, 0]
    return ids, firsts, (alone, columns[local][alone])


def log_inclusion(log_share: Tensor, size: int) -> Tensor:
    """log(1 - (1 - p)^size): how likely an item of log share `log_share` [...] is among `size` draws.

    The power itself is not computed: for a rare item 1 - p rounds to one, and the log of the rest to minus
    infinity.
    """
    absent = size * torch.log1p(-log_share.exp())
    return (-torch.expm1(absent)).log()


class CrossBatchConfig(FrequencySettings):
    """The positives of the batches before this one, with the vectors that they had then.

    Args:
        batches: the number of earlier batches in the queue.
        frequencies, streaming_rate: see `FrequencySettings`.

    Draws:
        int64 [S], shared by the batch, the positives in the queue; S is 0 in the first step.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = samplers.cross_batch(batches=8).build(catalog)
        >>> [sampler.draw(users, positives, step).ids for _ in range(2)]
        [tensor([], dtype=torch.int64), tensor([5, 6])]
    """

    mixable: ClassVar[bool] = True
    covers_catalog: ClassVar[bool] = False
    # The first steps draw from a queue that is not full.
    fixed_size: ClassVar[bool] = False

    kind: Literal["cross_batch"] = "cross_batch"
    batches: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 8

    @property
    def remembered_batches(self) -> int:
        """The number of batches in the queue."""
        return self.batches

    def build(self, context: BuildContext) -> Sampler:
        frequency = self.frequency(context)
        return CrossBatchSampler(frequency, context.item_count, self.batches, context.device)


class CrossBatchSampler(BatchSampler):
    """S candidates: the positives of the last `batches` batches before this one, item i expected S p_i times.

    Vectors change slowly, so those of some steps ago stand in for current ones and cost no pass through the
    item tower (Wang et al. 2021). The present batch joins the queue only after the draw, so that no example
    meets its own positive because of itself: S p_i is as exact as p for every example.

    The first step of a run finds the queue empty: it draws nothing, and its loss has no negative. In that
    step alone, where every count is zero, positives are counted as though the queue held one example, so
    that a loss that corrects the positive stays finite.

    With several processes, the queue holds the positives of all of them, the same in each.
    """

    def __init__(self, frequency: Frequency, item_count: int, batches: int, device: torch.device) -> None:
        super().__init__(frequency, item_count)
        self.batches = batches
        self.device = device
        self._sizes: list[int] = []
        self._ids = torch.empty(0, dtype=torch.int64, device=device)
        self._vectors = torch.empty(0, 0, device=device)
        # The size of the queue in the last draw, before its own batch joined.
        self._drawn = 0

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use the queue [S] as the draw of every example, then let the positives join it.

        Raises TrainingError for a positive that the frequencies can't correct.
        """
        batch = context.gathered
        gathered = self._observed(positives, context)
        ids, self._drawn = self._ids, len(self._ids)
        draw = Draw(
            ids=ids,
            log_count=self.log_expected(query, positives, ids),
            positive_log_count=math.log(max(self._drawn, 1)) + self.frequency.log_share(positives),
            valid=ids != positives.unsqueeze(1),
            stored=self._vectors if self._drawn else context.positive_vectors[:0],
        )
        self._join(gathered, context.positive_vectors if batch is None else batch.vectors.detach().float())
        return draw

    def _join(self, positives: Tensor, vectors: Tensor) -> None:
        """Append a batch and drop the oldest beyond `batches`; tensors are new, as draws share the old."""
        leaving = self._sizes[0] if len(self._sizes) == self.batches else 0
        queued = self._vectors[leaving:] if self._sizes else vectors[:0]
        self._sizes = [*self._sizes, len(positives)][-self.batches :]
        self._ids = torch.cat([self._ids[leaving:], positives])
        self._vectors = torch.cat([queued, vectors])

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(S p) of `ids`; minus infinity for all of them where the queue was empty."""
        log_share = self.frequency.log_share(ids)
        return math.log(self._drawn) + log_share if self._drawn else torch.full_like(log_share, -math.inf)

    def state(self) -> State:
        queue = {"ids": self._ids, "vectors": self._vectors, "sizes": torch.tensor(self._sizes)}
        return queue | super().state()

    def restore(self, state: State) -> None:
        self._sizes = state["sizes"].long().tolist()
        self._ids = state["ids"].to(self.device)
        self._vectors = state["vectors"].to(self.device)
        super().restore(state)


class GivenNegatives(SamplerSettings):
    """The negatives of each example, in place of a draw; an `Estimator` takes them with each step.

    Such negatives have no probabilities: losses that are corrected by expected counts take each negative as
    expected once.

    Draws:
        int64 [B, K], the negatives of the step.

    Example, with the inputs of `SamplerSettings`:

        >>> sampler = GivenNegatives().build(catalog)
        >>> draw = sampler.draw(users, positives, step)
        >>> draw.ids.shape, draw.valid[0]
        (torch.Size([2, 3]), tensor([ True,  True, False]))
    """

    counts_positives: ClassVar[bool] = False

    kind: str = "given"

    def build(self, context: BuildContext) -> Sampler:
        return GivenSampler()


class GivenSampler(Sampler):
    """The candidates of a step are the negatives of its context."""

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use `context.negatives` [B, K], where -1 is masked. Raises TrainingError without them."""
        if context.negatives is None:
            raise TrainingError(
                "GivenNegatives draws nothing; give the step its negatives, int64 [B, K], with -1 for none."
            )
        present = context.negatives >= 0
        ids = context.negatives.clamp(min=0)
        zeros = torch.zeros((), device=query.device)
        return Draw(
            ids=ids,
            log_count=zeros.expand(ids.shape),
            positive_log_count=torch.full(positives.shape, float("-inf"), device=query.device),
            valid=present & (ids != positives.unsqueeze(1)),
        )

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Raise TrainingError: there is no proposal."""
        raise TrainingError("GivenNegatives has no probabilities; compare samplers that draw.")
