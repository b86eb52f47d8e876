"""Unions of draws: each candidate is counted by all parts together."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.contracts.samplers import (
    CPU,
    sampler_of,
)
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import MinedConfig, MinedSampler
from turret.training.samplers.core.contract import CountingSampler, Draw, DrawContext, drawn_with_replacement
from turret.training.samplers.fixed.popularity import PopularitySampler
from turret.training.samplers.from_batch.frequency import KnownFrequency
from turret.training.samplers.from_batch.in_batch import CrossBatchSampler, InBatchSampler
from turret.training.samplers.registry import MixedSampler

# A catalog of five: nobody's target is item 4, and item 3 is never drawn by the proposal.
COUNTS = np.array([8, 4, 3, 1, 0])
SHARES = [count / 16 for count in COUNTS.tolist()]
Q = [0.125, 0.0, 0.25, 0.0, 0.625]
AXIS = torch.tensor([[0.1], [0.9], [0.3], [0.2], [0.4]])


class Given(CountingSampler):
    """Draws what it is told, with the counts of Q."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.log_q = torch.tensor(ids), torch.tensor(Q).log()

    def draw(self, query: Tensor, positives: Tensor, context: DrawContext) -> Draw:
        return drawn_with_replacement(self.ids, self.log_q, positives)

    def probability(self, query: Tensor, context: DrawContext | None = None) -> Tensor:
        raise NotImplementedError

    def log_expected(self, query: Tensor, positives: Tensor, ids: Tensor) -> Tensor:
        return math.log(len(self.ids)) + self.log_q[ids]


def on_axis(positives: Tensor) -> DrawContext:
    return DrawContext(stream(0, "draw", 0), positives, AXIS[positives], AXIS.__getitem__)


def draw_for(sampler: CountingSampler, rows: Sequence[int]) -> Draw:
    """A draw for a batch whose first example prefers what is far along the axis, the second what is not."""
    positives = torch.tensor(rows)
    query = torch.tensor([[1.0], [-1.0]])[: len(rows)]
    return sampler.draw(query, positives, on_axis(positives))


def queue(rows: Sequence[int]) -> CrossBatchSampler:
    sampler = CrossBatchSampler(KnownFrequency(COUNTS, CPU), 5, 1, CPU)
    draw_for(sampler, rows)
    return sampler


def mined() -> MinedSampler:
    sampler = sampler_of(MinedConfig(negatives=2), 5)
    assert isinstance(sampler, MinedSampler)
    sampler.refresh(AXIS)
    return sampler


def test_shared_candidates_come_before_those_of_single_examples() -> None:
    """With the stored ones last among them, so that each kind can be scored in its own way."""
    draw = draw_for(MixedSampler([mined(), queue((0, 1)), Given([4])]), [1, 3])
    assert draw.shared == 3
    assert draw.stored is not None
    torch.testing.assert_close(draw.stored, AXIS[[0, 1]])
    assert draw.ids.tolist() == [[4, 0, 1, 1, 4], [4, 0, 1, 0, 3]]
    added = 2 * torch.tensor(SHARES) + torch.tensor(Q)
    among = torch.tensor([[1, 0, 1, 1, 1], [0, 1, 0, 1, 1]])
    torch.testing.assert_close(draw.log_count.exp(), added[draw.ids] + among)
    assert torch.equal(draw.valid, draw.ids != torch.tensor([[1], [3]]))


def test_parts_do_not_share_a_random_stream() -> None:
    """A part draws the same whatever the parts beside it draw, and two alike do not draw alike."""
    ids = [
        MixedSampler(
            [PopularitySampler(np.ones(1000), first, CPU), PopularitySampler(np.ones(1000), 40, CPU)]
        )
        .draw(torch.zeros(2, 1), torch.tensor([0, 1]), on_axis(torch.tensor([0, 1])))
        .ids
        for first in (40, 41)
    ]
    assert torch.equal(ids[0][40:], ids[1][41:])
    assert not torch.equal(ids[0][:40], ids[0][40:])


def test_each_place_in_the_batch_stays_masked_where_hits_count() -> None:
    """Also after another part's candidates; hits among those count."""
    positives = torch.tensor([2, 0, 2])
    known = KnownFrequency(np.ones(4, dtype=np.int64), CPU)
    parts = [PopularitySampler(np.ones(4), 40, CPU), InBatchSampler(known, 4)]
    context = DrawContext(stream(0, "draw", 0), positives, torch.zeros(3, 2), torch.zeros(4, 2).__getitem__)
    draw = MixedSampler(parts).draw(torch.zeros(3, 2), positives, context).keeping_hits(positives)
    assert draw.ids[40:].tolist() == [2, 0, 2]
    assert draw.valid[:, :40].all()
    assert draw.valid[:, 40:].tolist() == [[False, True, True], [True, False, True], [True, True, False]]
