"""Samplers from the batch and from earlier ones, the frequencies that correct them, and unions of draws."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.samplers import (
    CPU,
    sampler_of,
)
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import MinedConfig, MinedSampler
from turret.training.samplers.core.contract import CountingSampler, Draw, DrawContext, drawn_with_replacement
from turret.training.samplers.fixed.popularity import PopularitySampler
from turret.training.samplers.from_batch.frequency import KnownFrequency, StreamingFrequency
from turret.training.samplers.from_batch.in_batch import CrossBatchSampler, InBatchSampler
from turret.training.samplers.registry import MixedSampler


def test_known_without_events_is_refused() -> None:
    """A sentence says what to use instead; smoothed, all items are alike."""
    nothing = np.zeros(4, dtype=np.int64)
    with pytest.raises(TrainingError, match="streaming"):
        KnownFrequency(nothing, CPU)
    smoothed = KnownFrequency(nothing, CPU, smoothed=True)
    torch.testing.assert_close(smoothed.log_share(torch.arange(4)).exp(), torch.full((4,), 0.25))


def test_a_positive_without_a_count_is_refused() -> None:
    """It is a candidate for others, whose correction would be infinite; the sentence names the row."""
    frequency, rows = KnownFrequency(np.array([3, 1, 0, 1, 1]), CPU), torch.tensor([0, 2])
    vectors = torch.eye(5)
    context = DrawContext(stream(0, "draw", 0), rows, vectors[rows], vectors.__getitem__)
    for sampler in (InBatchSampler(frequency, 5), CrossBatchSampler(frequency, 5, 2, CPU)):
        with pytest.raises(TrainingError, match=r"row 2 .*smoothed.*streaming"):
            sampler.draw(torch.zeros(2, 5), rows, context)
    frequency.observe(torch.tensor([0, 1]))
    KnownFrequency(np.array([3, 0]), CPU, smoothed=True).observe(torch.tensor([1]))


@pytest.mark.parametrize("unique", [False, True])
def test_hits_are_the_copies_of_other_examples(unique: bool) -> None:
    """Where hits count, an example's own place is still masked; the same item of another example counts."""
    positives = torch.tensor([3, 1, 3, 0])
    sampler = InBatchSampler(KnownFrequency(np.ones(4, dtype=np.int64), torch.device("cpu")), 4, unique)
    context = DrawContext(
        np.random.default_rng(0), positives, torch.zeros(4, 2), lambda rows: torch.zeros(len(rows), 2)
    )
    draw = sampler.draw(torch.zeros(4, 2), positives, context).keeping_hits(positives)
    counted = [sorted(draw.ids[valid].tolist()) for valid in draw.valid]
    others = [[0, 1, 3], [0, 3, 3], [0, 1, 3], [1, 3, 3]]
    assert counted == ([sorted(set(items)) for items in others] if unique else others)


def vectors_at(step: int, positives: Tensor) -> Tensor:
    """Vectors that tell which item they are of and which step they are from."""
    return torch.stack([positives, torch.full_like(positives, step)], dim=1).float()


def test_the_queue_holds_the_batches_before_this_one() -> None:
    """Batches of any size join after the draw, with the vectors of their step, and leave in order."""
    sampler = CrossBatchSampler(KnownFrequency(np.array([8, 4, 2, 1, 1]), CPU), 5, 2, CPU)
    found = []
    for step, rows in enumerate(([0, 1, 2], [3], [4, 4], [0, 0])):
        positives = torch.tensor(rows)
        vectors = vectors_at(step, positives)
        context = DrawContext(stream(0, "draw", step), positives, vectors, partial(vectors_at, step))
        found.append(sampler.draw(torch.zeros(len(rows), 2), positives, context))
    assert [draw.ids.tolist() for draw in found] == [[], [0, 1, 2], [0, 1, 2, 3], [3, 4, 4]]
    stored = [draw.stored.tolist() for draw in found if draw.stored is not None]
    assert stored[2:] == [[[0, 0], [1, 0], [2, 0], [3, 1]], [[3, 1], [4, 2], [4, 2]]]


def streaming(rate: float = 0.01, buckets: int = 4096, hashes: int = 2) -> StreamingFrequency:
    return StreamingFrequency(buckets, hashes, rate, stream(0, "hash", 0))


def poisson(hits: float, examples: float, rate: float) -> float:
    """The log likelihood of `hits` in so many examples, but for its constant."""
    return (hits * math.log(rate * examples) if hits else 0.0) - rate * examples


def contradicted(gap: float, before: int, hits: int, span: int) -> bool:
    """Whether two rates explain the `before` and the new hits by a factor of exp(10) better than one."""
    if before == 0:
        return False
    old, common = before * gap, (before + hits) / (before * gap + span)
    apart = poisson(before, old, before / old) + poisson(hits, span, hits / span)
    return apart - poisson(before, old, common) - poisson(hits, span, common) > 10.0


def naive_gaps(batches: list[list[int]], rate: float, restart: bool = True) -> dict[int, float]:
    """The mean gap of each item by one update a hit; several hits of a batch share their mean gap.

    The nth hit weighs 1/n, and never less than the rate. An item that stays away for longer than its mean
    gap is given one more hit at the end. With `restart`, hits that contradict the mean begin a new one.
    """
    now = 0
    hits: dict[int, int] = {}
    last: dict[int, int] = {}
    gap: dict[int, float] = {}
    memory = int(1 / rate)
    for batch in batches:
        for item in sorted(set(batch)):
            positions = [position for position, other in enumerate(batch) if other == item]
            span = now + 1 + positions[-1] - last.get(item, 0)
            before = min(hits.get(item, 0), memory)
            if restart and contradicted(gap.get(item, 0.0), before, len(positions), span):
                hits[item] = 0
            for _ in positions:
                hits[item] = hits.get(item, 0) + 1
                weight = max(rate, 1 / hits[item])
                gap[item] = (1 - weight) * gap.get(item, 0.0) + weight * span / len(positions)
            last[item] = now + 1 + positions[-1]
        now += len(batch)
    for item in hits:
        silence = now - last[item]
        if restart and silence and contradicted(gap[item], min(hits[item], memory), 0, silence):
            gap[item] = silence
        elif silence > gap[item]:
            weight = max(rate, 1 / (hits[item] + 1))
            gap[item] = (1 - weight) * gap[item] + weight * silence
    return gap


def test_a_mean_restarts_where_the_loop_over_hits_does() -> None:
    """A reversal of popularity after 40 batches, at its end, and two and ten batches after it."""
    random = np.random.default_rng(0)
    shares = np.geomspace(1.0, 1e-4, 30)
    shares /= shares.sum()
    orders = [shares] * 40 + [shares[::-1]] * 10
    batches = [random.choice(30, 64, p=order).tolist() for order in orders]
    frequency = streaming(rate=0.05)
    for number, batch in enumerate(batches, start=1):
        frequency.observe(torch.tensor(batch))
        if number in (40, 42, 50):
            for item, gap in naive_gaps(batches[:number], 0.05).items():
                share = frequency.log_share(torch.tensor([item])).exp()
                assert share.item() == pytest.approx(1 / gap, rel=1e-5)
    assert naive_gaps(batches[:40], 0.05) == naive_gaps(batches[:40], 0.05, restart=False)
    assert naive_gaps(batches, 0.05) != naive_gaps(batches, 0.05, restart=False)


# A catalog of five: nobody's target is item 4, and item 3 is never drawn by the proposal.
COUNTS = np.array([8, 4, 3, 1, 0])
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


def test_shared_candidates_come_before_those_of_single_examples() -> None:
    """With the stored ones last among them, so that each kind can be scored in its own way."""
    mined = sampler_of(MinedConfig(negatives=2), 5)
    assert isinstance(mined, MinedSampler)
    mined.refresh(AXIS)
    queue = CrossBatchSampler(KnownFrequency(COUNTS, CPU), 5, 1, CPU)
    draw_for(queue, (0, 1))
    draw = draw_for(MixedSampler([mined, queue, Given([4])]), [1, 3])
    assert draw.shared == 3
    assert draw.stored is not None
    torch.testing.assert_close(draw.stored, AXIS[[0, 1]])
    assert draw.ids.tolist() == [[4, 0, 1, 1, 4], [4, 0, 1, 0, 3]]
    added = 2 * torch.from_numpy(COUNTS / 16).float() + torch.tensor(Q)
    among = torch.tensor([[1, 0, 1, 1, 1], [0, 1, 0, 1, 1]])
    torch.testing.assert_close(draw.log_count.exp(), added[draw.ids] + among)
    assert torch.equal(draw.valid, draw.ids != torch.tensor([[1], [3]]))


def test_parts_do_not_share_a_random_stream() -> None:
    """A part draws independently of the parts beside it, and two alike do not draw alike."""
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


def test_each_place_in_the_batch_stays_masked_behind_candidates_of_single_examples() -> None:
    """A union moves the shared candidates of a later part in front of these."""
    positives = torch.tensor([2, 0, 2])
    mined = sampler_of(MinedConfig(negatives=2), 5)
    assert isinstance(mined, MinedSampler)
    mined.refresh(AXIS)
    sampler = MixedSampler([mined, InBatchSampler(KnownFrequency(COUNTS, CPU), 5)])
    query = torch.tensor([[1.0], [-1.0], [1.0]])
    draw = sampler.draw(query, positives, on_axis(positives)).keeping_hits(positives)
    assert draw.ids[:, :3].tolist() == [[2, 0, 2]] * 3
    assert draw.valid[:, :3].tolist() == [[False, True, True], [True, False, True], [True, True, False]]
    assert draw.valid[:, 3:].all()
