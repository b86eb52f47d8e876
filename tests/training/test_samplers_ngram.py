"""Samplers by the last item read: bigrams of the log, and a mixture of n-grams that learns."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.samplers import COUNTS, context_of, follows
from tests.oracles.proposals import Mixture, redistributed
from turret.training.randomness import stream
from turret.training.samplers.adaptive.ngram import (
    AdaptiveNgramSampler,
    BigramSampler,
    NgramTables,
    frequency_bins,
)
from turret.training.samplers.core.contract import Draw, Sampler
from turret.training.samplers.fixed.alias import unigram_weights


def bigram() -> BigramSampler:
    pairs = np.flatnonzero(follows())
    return BigramSampler(pairs, follows().ravel()[pairs], unigram_weights(COUNTS, 1.0), 10)


def after(last: int) -> list[float]:
    """The bigram's q after one item, written out: (c(last, i) + 10 u_i) / (c(last) + 10)."""
    table, unigram = follows(), (COUNTS + 1) / (COUNTS + 1).sum()
    total = table[last].sum() + 10.0
    return [(table[last, item] + 10.0 * unigram[item]) / total for item in range(12)]


def proposal(sampler: Sampler) -> Tensor:
    """q [12, 12] after each item."""
    return sampler.probability(torch.zeros(12, 4), context_of(torch.arange(12)))


def test_probabilities_of_a_bigram_are_those_of_the_counts() -> None:
    q = proposal(bigram())
    for item in range(12):
        assert q[item].tolist() == pytest.approx(after(item), rel=1e-5)


def test_without_any_pair_the_unigram_is_left() -> None:
    """Data whose users have one event each has no pairs, and still a proposal, which may learn."""
    none, rows = np.empty(0, dtype=np.int64), torch.tensor([0, 1])
    context = context_of(rows, torch.zeros(2, 4))
    plain = BigramSampler(none, none, np.array([1.0, 3.0]), 5)
    torch.testing.assert_close(
        plain.probability(torch.zeros(2, 4), context), torch.tensor([[0.25, 0.75]] * 2)
    )
    draw = plain.draw(torch.zeros(2, 4), rows, context)
    assert draw.positive_log_count.tolist() == pytest.approx([math.log(5 / 4), math.log(15 / 4)])
    tables = NgramTables(none, none, np.array([1.0, 3.0]))
    learner = AdaptiveNgramSampler(tables, frequency_bins(none, none, 2), 5, 0.1, 1)
    draw = learner.draw(torch.zeros(2, 4), rows, context)
    learner.observe(draw, torch.zeros(2), torch.zeros(draw.ids.shape))
    q = learner.probability(torch.zeros(2, 4), context)
    torch.testing.assert_close(q.sum(dim=1), torch.ones(2), atol=1e-6, rtol=0)


FIRST, UNFOLLOWED = [0.1, 0.3, 0.6], [0.1, 0.9, 0.0]


def ngram(rate: float = 0.2, publish_every: int = 2) -> AdaptiveNgramSampler:
    pairs = np.flatnonzero(follows())
    counts = follows().ravel()[pairs]
    tables = NgramTables(pairs, counts, unigram_weights(COUNTS, 1.0))
    return AdaptiveNgramSampler(tables, frequency_bins(pairs, counts, 12), 10, rate, publish_every)


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
