"""The other positives of the batch as candidates, whose vectors are there already."""

import math

import torch
from torch import Tensor

from training.samplers.contract import CountingSampler, DrawContext, State
from training.samplers.draw import Draw, without_accidental_hits
from training.samplers.frequency import Frequency


class InBatchSampler(CountingSampler):
    """K = B candidates: the positives of the batch, item i expected B p_i times among them.

    Popular items are drawn as often as they are positives; without the correction by their count the
    loss pushes them down (Yi et al. 2019).
    """

    def __init__(self, frequency: Frequency, item_count: int) -> None:
        self.frequency = frequency
        self.item_count = item_count

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        """Use the positives [B] as the draw of every example; its own item is masked."""
        self.frequency.observe(positives)
        log_count = self.log_expected(query, positives, positives)
        return Draw(
            ids=positives,
            log_count=log_count,
            positive_log_count=log_count,
            valid=without_accidental_hits(positives, positives),
        )

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        """log(B p) of `ids`."""
        return math.log(len(positives)) + self.frequency.log_share(ids)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        """p [N] as known or estimated, made to sum to one, for each of the B queries: [B, N]."""
        share = self.frequency.log_share(torch.arange(self.item_count, device=query.device)).exp()
        return (share / share.sum()).expand(len(query), -1)

    def state(self) -> State:
        """What the frequencies keep."""
        return self.frequency.state()

    def restore(self, state: State) -> None:
        """Go on from what `state` gave."""
        self.frequency.restore(state)
