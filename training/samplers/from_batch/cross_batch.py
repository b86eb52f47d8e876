"""The positives of earlier batches as candidates, with the vectors that they had then."""

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from turret.training.samplers.core.contract import CountingSampler, DrawContext, Sampler, State
from turret.training.samplers.core.draw import Draw, check_positives, without_accidental_hits
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings
from turret.training.samplers.from_batch.frequency import Frequency, FrequencySettings, shares

# B x K scores of the queue in a report.
_MOST_QUEUED_SCORES = 2**25


class CrossBatchConfig(FrequencySettings):
    """The positives of the `batches` batches before this one, with the vectors that they had then."""

    mixable: ClassVar[bool] = True
    covers_catalog: ClassVar[bool] = False

    kind: Literal["cross_batch"] = "cross_batch"
    batches: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 8

    @classmethod
    def compared(cls, negatives: int, batch_size: int) -> dict[str, SamplerSettings]:
        """One queue, of at most four batches whose scores fit into memory."""
        batches = max(1, min(4, _MOST_QUEUED_SCORES // batch_size**2))
        return {f"cross_batch of {batches}": cls(batches=batches)}

    @property
    def remembered_batches(self) -> int:
        """The whole queue."""
        return self.batches

    @property
    def fixed_size(self) -> bool:
        """Not before the queue is full, and the first step draws nothing."""
        return False

    def build(self, context: SamplerContext) -> Sampler:
        """Build the sampler."""
        frequency = self.frequency(context)
        return CrossBatchSampler(frequency, context.item_count, self.batches, context.device)


class CrossBatchSampler(CountingSampler):
    """S candidates: the positives of the last `batches` batches before this one, item i expected S p_i times.

    Vectors change slowly, so those of some steps ago stand in for those of now and cost no pass through
    the item tower (Wang et al. 2021). The present batch joins the queue only after the draw, so that no
    example meets its own positive for being there: S p_i is exact for every example, as far as p is.

    The first step of a run finds the queue empty: it draws nothing, and its loss has no negative. In that
    step alone, where every count is zero, positives are counted as though the queue held one example, so
    that a loss that corrects the positive stays finite.

    With several processes, the queue holds the positives of all of them, the same in each.
    """

    draws_batch = True

    def __init__(self, frequency: Frequency, item_count: int, batches: int, device: torch.device) -> None:
        self.frequency = frequency
        self.item_count = item_count
        self.batches = batches
        self.device = device
        self._sizes: list[int] = []
        self._ids = torch.empty(0, dtype=torch.int64, device=device)
        self._vectors = torch.empty(0, 0, device=device)
        # The size of the queue in the last draw, before its own batch joined.
        self._drawn = 0

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use the queue [S] as the draw of every example, then let the positives join it.

        Raises TrainingError for a positive outside the catalog, or one that the frequencies can't correct.
        """
        batch = context.gathered
        every = positives if batch is None else batch.positives
        check_positives(every, self.item_count)
        self.frequency.observe(every)
        ids, self._drawn = self._ids, len(self._ids)
        draw = Draw(
            ids=ids,
            log_count=self.log_expected(query, positives, ids),
            positive_log_count=math.log(max(self._drawn, 1)) + self.frequency.log_share(positives),
            valid=without_accidental_hits(ids, positives),
            stored=self._vectors if self._drawn else context.positive_vectors[:0],
        )
        self._join(every, context.positive_vectors if batch is None else batch.vectors.detach().float())
        return draw

    def _join(self, positives: Tensor, vectors: Tensor) -> None:
        """Append a batch and drop the oldest beyond `batches`, into new tensors: draws share the old ones."""
        leaving = self._sizes[0] if len(self._sizes) == self.batches else 0
        queued = self._vectors[leaving:] if self._sizes else vectors[:0]
        self._sizes = [*self._sizes, len(positives)][-self.batches :]
        self._ids = torch.cat([self._ids[leaving:], positives])
        self._vectors = torch.cat([queued, vectors])

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(S p) of `ids`; minus infinity for all of them where the queue was empty."""
        log_share = self.frequency.log_share(ids)
        return math.log(self._drawn) + log_share if self._drawn else torch.full_like(log_share, -math.inf)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """Normalised p [N], for each of the B queries: [B, N]."""
        return shares(self.frequency, self.item_count, query.device).expand(len(query), -1)

    def state(self) -> State:
        """The queue, and the state of the frequencies."""
        queue = {"ids": self._ids, "vectors": self._vectors, "sizes": torch.tensor(self._sizes)}
        return queue | {f"frequency.{name}": tensor for name, tensor in self.frequency.state().items()}

    def restore(self, state: State) -> None:
        """Restore a `state`."""
        self._sizes = state["sizes"].long().tolist()
        self._ids = state["ids"].to(self.device)
        self._vectors = state["vectors"].to(self.device)
        prefix = "frequency."
        self.frequency.restore(
            {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        )
