"""Samplers by counts of the log: popularity, exact heads, the positive left out, bigrams and n-grams."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.samplers import COUNTS, CPU, DOT, Catalog, context_of, follows, query_of, sampler_of
from tests.oracles.proposals import Mixture, redistributed
from turret.training import samplers
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import MinedConfig
from turret.training.samplers.adaptive.ngram import (
    AdaptiveNgramSampler,
    BigramSampler,
    NgramTables,
)
from turret.training.samplers.core.contract import Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import BuildContext
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
        (unigram_weights(np.array([1000, 0, 10]), 1.0, added=0.0), [1000 / 1010, 0.0, 10 / 1010]),
        (log_uniform_weights(TIED), [log_uniform(BY_RANK.index(row)) for row in range(12)]),
    ],
    ids=["uniform", "unigram", "without events", "nothing added", "log uniform"],
)
def test_proposals_are_those_of_their_formulas(weights: Floats, expected: list[float]) -> None:
    """By (count + 1)^alpha, so that an item without events has a finite correction; and by ranks."""
    q = PopularitySampler(weights, 50, CPU).probability(torch.zeros(1, 4))[0]
    assert q.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("exclude_positive", [False, True])
def test_with_nothing_added_an_item_without_events_is_never_drawn(exclude_positive: bool) -> None:
    """Nor by Bernoulli draws, which expect as many items as before."""
    counts = np.where(np.arange(12) % 2, COUNTS, 0)
    context = BuildContext(Catalog(12, counts), DOT, 0, CPU)
    settings = samplers.unigram(negatives=2_000, alpha=1.0, added=0.0, exclude_positive=exclude_positive)
    positives = torch.tensor([3, 5])
    drawn = settings.build(context).draw(query_of(2), positives, context_of(positives)).ids
    assert set(drawn.flatten().tolist()) == {1, 3, 5, 7, 9, 11}
    shares = samplers.bernoulli(negatives=2, alpha=0.5, added=0.0).build(context).probability(query_of(1))[0]
    assert shares[::2].tolist() == [0.0] * 6
    roots = counts[1::2] ** 0.5
    assert shares[1::2].tolist() == pytest.approx((roots / roots.sum()).tolist(), rel=1e-5)


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


def proposal(sampler: Sampler) -> Tensor:
    """q [12, 12] after each item."""
    return sampler.probability(torch.zeros(12, 4), context_of(torch.arange(12)))


def test_probabilities_of_a_bigram_are_those_of_the_counts() -> None:
    """(c(last, i) + 10 u_i) / (c(last) + 10) after each item."""
    table, unigram = follows(), (COUNTS + 1) / (COUNTS + 1).sum()
    pairs = np.flatnonzero(table)
    tables = NgramTables(pairs, table.ravel()[pairs], unigram_weights(COUNTS, 1.0))
    q = proposal(BigramSampler(tables, 10))
    for last in range(12):
        expected = (table[last] + 10.0 * unigram) / (table[last].sum() + 10.0)
        assert q[last].tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def test_without_any_pair_the_unigram_is_left() -> None:
    """Data whose users have one event each has no pairs, and still a proposal, which may learn."""
    none, rows = np.empty(0, dtype=np.int64), torch.tensor([0, 1])
    context = context_of(rows, torch.zeros(2, 4))
    tables = NgramTables(none, none, np.array([1.0, 3.0]))
    plain = BigramSampler(tables, 5)
    torch.testing.assert_close(
        plain.probability(torch.zeros(2, 4), context), torch.tensor([[0.25, 0.75]] * 2)
    )
    draw = plain.draw(torch.zeros(2, 4), rows, context)
    assert draw.positive_log_count.tolist() == pytest.approx([math.log(5 / 4), math.log(15 / 4)])
    learner = AdaptiveNgramSampler(tables, 5, 0.1, 1)
    draw = learner.draw(torch.zeros(2, 4), rows, context)
    learner.observe(draw, torch.zeros(2), torch.zeros(draw.ids.shape))
    q = learner.probability(torch.zeros(2, 4), context)
    torch.testing.assert_close(q.sum(dim=1), torch.ones(2), atol=1e-6, rtol=0)


FIRST, UNFOLLOWED = [0.1, 0.3, 0.6], [0.1, 0.9, 0.0]


def ngram(rate: float = 0.2, publish_every: int = 2) -> AdaptiveNgramSampler:
    pairs = np.flatnonzero(follows())
    counts = follows().ravel()[pairs]
    tables = NgramTables(pairs, counts, unigram_weights(COUNTS, 1.0))
    return AdaptiveNgramSampler(tables, 10, rate, publish_every)


def mixture(last: int, shares: list[float]) -> Mixture:
    """The first tables, with the shares of one item's bin."""
    unigram = ((COUNTS + 1) / (COUNTS + 1).sum()).tolist()
    table = follows()
    pairs = zip(*np.nonzero(table), strict=True)
    bigram = {(int(one), int(other)): table[one, other] / table[one].sum() for one, other in pairs}
    return Mixture(shares, unigram, bigram)


def test_the_first_proposal_is_the_mixture_of_the_counts() -> None:
    """Uniform, unigram and bigram; only the first two after an item that nothing ever followed."""
    q = proposal(ngram())
    for last in range(12):
        parts = mixture(last, UNFOLLOWED if last in (5, 11) else FIRST)
        expected = [sum(parts.parts(last, item)) for item in range(12)]
        assert q[last].tolist() == pytest.approx(expected, rel=1e-5)


def drawn(ngram: AdaptiveNgramSampler, last: list[int], positives: list[int]) -> Draw:
    rows = torch.tensor(last)
    return ngram.draw(torch.zeros(len(last), 4), torch.tensor(positives), context_of(rows))


def test_a_step_learns_as_it_is_written_down() -> None:
    """Shares by the mean origin of p's items, tables by the mass of the step's items; copies count once.

    Examples whose last items were followed about as often move the same shares.
    """
    learner, last, positives = ngram(rate=0.2, publish_every=1), [3, 3, 8], [1, 6, 2]
    draw = drawn(learner, last, positives)
    scores = torch.from_numpy(stream(1, "scores", 0).normal(size=12))
    learner.observe(draw, scores[positives], scores[draw.ids])
    first = mixture(0, FIRST)
    unigram = {(0, item): share for item, share in enumerate(first.unigram)}
    lines = []
    bins: dict[int, list[list[float]]] = {}
    for example, (one, positive) in enumerate(zip(last, positives, strict=True)):
        ids = [item for item in draw.ids[example].tolist() if item != positive]
        log_counts = [math.log(10 * sum(first.parts(one, item))) for item in ids]
        corrected = [float(scores[item]) - count for item, count in zip(ids, log_counts, strict=True)]
        origin = first.origin(one, [positive, *ids], [float(scores[positive]), *corrected])
        bins.setdefault(int(math.log2(follows()[one].sum())) + 1, []).append(origin)
        lines.append([(item, float(scores[item])) for item in {positive, *ids}])
    for number, origins in bins.items():
        mean = [sum(values) / len(origins) for values in zip(*origins, strict=True)]
        wanted = [0.95 * value + 0.05 * prior for value, prior in zip(mean, FIRST, strict=True)]
        expected = [prior + 0.2 * (value - prior) for value, prior in zip(wanted, FIRST, strict=True)]
        assert learner.shares[number].tolist() == pytest.approx(expected, rel=1e-5)
    moved = redistributed(unigram, [[((0, item), score) for item, score in line] for line in lines], 0.2)
    total = sum(moved.values())
    assert learner.tables.unigram.tolist() == pytest.approx(
        [moved[0, item] / total for item in range(12)], rel=1e-9
    )
    pairs = [[((one, item), score) for item, score in line] for one, line in zip(last, lines, strict=True)]
    followers = redistributed(first.bigram, pairs, 0.2)
    for one in range(12):
        row = {key: value for key, value in followers.items() if key[0] == one}
        for key, value in row.items():
            position = int(np.searchsorted(learner.tables.pairs, key[0] * 12 + key[1]))
            expected_share = value / sum(row.values())
            assert learner.tables.followers[position] == pytest.approx(expected_share, rel=1e-9)


def test_extreme_scores_and_masked_candidates_leave_a_proposal() -> None:
    """Scores of +-1e4, and an example whose candidates are all masked: q stays positive, and sums to one."""
    learner = ngram(rate=0.5, publish_every=1)
    for step in range(50):
        draw = drawn(learner, [0, 5, 8], [2, 3, 4])
        draw.valid[1] = False
        extreme = 1e4 * torch.from_numpy(stream(4, "extreme", step).choice([-1.0, 1.0], size=(3, 11)))
        learner.observe(draw, extreme[:, 0], extreme[:, 1:])
    q = proposal(learner)
    assert (q > 0).all()
    torch.testing.assert_close(q.sum(dim=1), torch.ones(12), atol=1e-5, rtol=0)
