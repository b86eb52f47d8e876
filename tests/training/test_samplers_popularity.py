"""Samplers by popularity: proposals, unique and Bernoulli draws, exact heads, and the positive left out."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.contracts.samplers import COUNTS, CPU, sampler_of
from turret.training import samplers
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import MinedConfig
from turret.training.samplers.core.contract import Draw, DrawContext
from turret.training.samplers.fixed.alias import log_uniform_weights, unigram_weights
from turret.training.samplers.fixed.complement import ComplementSampler, UniqueSampler
from turret.training.samplers.fixed.popularity import ExactHeadSampler, PopularitySampler

Floats = NDArray[np.float64]


def log_uniform(rank: int) -> float:
    """Of thirteen: (log(r + 2) - log(r + 1)) / log(N + 1)."""
    return (math.log(rank + 2) - math.log(rank + 1)) / math.log(13)


# The frequencies in another order than that of the rows, with a tie, of which the lower row comes first.
TIED = np.array([3, 60, 400, 1, 30, 20, 10, 5, 200, 2, 1, 100])
BY_RANK = [2, 8, 11, 1, 4, 5, 6, 7, 0, 9, 3, 10]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.ones(12), [1 / 12] * 12),
        (unigram_weights(COUNTS, 0.75), ((COUNTS + 1.0) ** 0.75 / ((COUNTS + 1.0) ** 0.75).sum()).tolist()),
        (unigram_weights(np.array([1000, 0, 10]), 1.0), [1001 / 1013, 1 / 1013, 11 / 1013]),
        (log_uniform_weights(TIED), [log_uniform(BY_RANK.index(row)) for row in range(12)]),
    ],
    ids=["uniform", "unigram", "without events", "log uniform"],
)
def test_proposals_are_those_of_their_formulas(weights: Floats, expected: list[float]) -> None:
    """By (count + 1)^alpha, so that an item without events has a finite correction; and by ranks."""
    q = PopularitySampler(weights, 50, CPU).probability(torch.zeros(1, 4))[0]
    assert q.tolist() == pytest.approx(expected, rel=1e-5)


def refusals() -> Iterator[tuple[Callable[[], object], str]]:
    nothing = np.zeros(3, dtype=np.int64)
    yield lambda: unigram_weights(nothing, 1.0), "use kind = 'uniform'"
    yield lambda: log_uniform_weights(nothing), "use kind = 'uniform'"
    yield lambda: ComplementSampler(np.ones(1), 5, CPU), "exclude_positive = false"
    yield lambda: UniqueSampler(np.ones(3), 4, CPU), r"negatives = 4 .* 3 items.*unique = false"
    unique = samplers.log_uniform(unique=True, negatives=13)
    yield lambda: sampler_of(unique, items=12), "catalog of 12 items"
    yield lambda: sampler_of(samplers.quartic(exclude_positive=True), items=1), "exclude_positive = false"
    yield lambda: sampler_of(samplers.quadratic(exclude_positive=True), items=1), "exclude_positive"
    yield lambda: sampler_of(MinedConfig(negatives=6), items=5), r"6 mined .* 5 items"


@pytest.mark.parametrize(("build", "sentence"), list(refusals()), ids=[said for _, said in refusals()])
def test_what_can_not_be_drawn_from_is_refused(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        build()


HEADED = np.array([2.0, 9.0, 1.0, 30.0, 4.0, 9.0])


def head_draw(sampler: ExactHeadSampler, step: int = 0) -> Draw:
    positives, query = torch.tensor([0]), torch.zeros(1, 4)
    context = DrawContext(stream(0, "draw", step), positives, query, torch.zeros(6, 4).__getitem__)
    return sampler.draw(query, positives, context)


def test_the_heaviest_are_certain_and_the_others_share_the_draws() -> None:
    """Items 3 and 1 are the head, the first of two that weigh 9; 2, 1, 4 and 9 of 16 are left for 8 draws."""
    sampler = ExactHeadSampler(HEADED, 2, 8, CPU)
    drawn = head_draw(sampler)
    assert drawn.ids[:2].tolist() == [1, 3]
    assert set(drawn.ids[2:].tolist()) <= {0, 2, 4, 5}
    assert len(drawn.ids) == 10
    expected = [8 * 2 / 16, 1.0, 8 * 1 / 16, 1.0, 8 * 4 / 16, 8 * 9 / 16]
    counts = sampler.log_expected(torch.zeros(1, 4), torch.tensor([0]), torch.arange(6)).exp()
    assert counts.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("exact", [6, 100])
def test_a_head_of_the_whole_catalog_leaves_nothing_to_draw(exact: int) -> None:
    """Every item once, and expected once: the full softmax."""
    drawn = head_draw(ExactHeadSampler(HEADED, exact, 8, CPU))
    assert drawn.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert drawn.log_count.tolist() == [0.0] * 6


@pytest.mark.parametrize("weight", [1e6, 1e12, 1e18])
@pytest.mark.parametrize("positive", [0, 1, 2])
def test_an_overwhelming_positive_leaves_the_others_their_shares(positive: int, weight: float) -> None:
    """Draws and counts are those of the others, also where next to the positive they add up to nothing."""
    others = [item for item in range(3) if item != positive]
    weights = np.empty(3)
    weights[[positive, *others]] = [weight, 3.0, 1.0]
    sampler = ComplementSampler(weights, 4000, CPU)
    rows = torch.tensor([positive])
    context = DrawContext(stream(0, "draw", 0), rows, torch.zeros(1, 4), torch.zeros(3, 4).__getitem__)
    draw = sampler.draw(torch.zeros(1, 4), rows, context)
    shares = torch.bincount(draw.ids[0], minlength=3) / 4000
    assert shares.tolist() == pytest.approx(
        [0.0 if i == positive else weights[i] / 4 for i in range(3)], abs=0.04
    )
    expected = torch.from_numpy(weights).float()[draw.ids] * 1000
    torch.testing.assert_close(draw.log_count.exp(), expected, rtol=1e-4, atol=0)
