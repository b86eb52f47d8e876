"""Samplers by popularity: proposals, unique and Bernoulli draws, exact heads, and the positive left out."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.contracts.samplers import (
    COUNTS,
    CPU,
    ITEMS,
    VECTORS,
    Z_OF_ONE_IN_A_MILLION,
    Fixed,
    context_of,
    draw_of,
    query_of,
    sampler_of,
)
from tests.oracles.softmax import all_draws
from tests.oracles.successive import inclusion, mean_tries
from turret.tower.config import ScoringConfig
from turret.training import samplers
from turret.training.errors import TrainingError
from turret.training.losses.sampled import sampled_softmax
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import DenseSampler, MinedSampler, quartic_kernel
from turret.training.samplers.core.contract import DrawContext, Sampler
from turret.training.samplers.core.draw import Draw
from turret.training.samplers.core.settings import SamplerSettings
from turret.training.samplers.core.snapshot import Snapshot
from turret.training.samplers.fixed.alias import log_uniform_weights, unigram_weights
from turret.training.samplers.fixed.complement import (
    ComplementSampler,
    SharedComplementSampler,
    UniqueSampler,
)
from turret.training.samplers.fixed.popularity import (
    BernoulliSampler,
    ExactHeadSampler,
    PopularitySampler,
    inclusion_chances,
)

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
    single = Snapshot(1, 1, CPU)
    kernel = quartic_kernel(ScoringConfig(kind="dot"))
    yield lambda: DenseSampler(kernel, 4, single, exclude_positive=True), "exclude_positive = false"
    yield lambda: sampler_of(samplers.quadratic(exclude_positive=True), items=1), "exclude_positive"
    yield lambda: MinedSampler(Snapshot(5, 1, CPU), 6), r"6 mined .* 5 items"


@pytest.mark.parametrize(("build", "sentence"), list(refusals()), ids=[said for _, said in refusals()])
def test_what_can_not_be_drawn_from_is_refused(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(TrainingError, match=sentence):
        build()


def unique_draws(sampler: UniqueSampler, steps: int) -> tuple[Floats, Floats]:
    """How often each item was drawn [N], and when the last and the next came in each draw [steps, 2]."""
    drawn, times = np.zeros(ITEMS), np.empty((steps, 2))
    for step in range(steps):
        ids = draw_of(sampler, step, size=1)[0].ids.numpy()
        assert len(set(ids.tolist())) == len(ids)
        drawn[ids] += 1
        times[step] = sampler.times
    return drawn, times


@pytest.mark.parametrize(
    ("weights", "size"), [(log_uniform_weights(COUNTS), 5), (unigram_weights(COUNTS, 2.0), 11)]
)
def test_unique_draws_come_as_when_all_orders_are_worked_out(weights: Floats, size: int) -> None:
    """As often, and after as long a time; also all but one where two have nearly all.

    Draws are one unit of time apart on average, so mean times are mean numbers of tries. One chance in a
    million for each of the fourteen numbers.
    """
    drawn, times = unique_draws(UniqueSampler(weights, size, CPU), 500)
    shares = (weights / weights.sum()).tolist()
    chances = np.array(inclusion(shares, size))
    errors = np.sqrt(500 * chances * (1.0 - chances))
    assert (np.abs(drawn - 500 * chances) < Z_OF_ONE_IN_A_MILLION * errors + 1e-6).all()
    for column, tries in ((0, size), (1, size + 1)):
        error = times[:, column].std(ddof=1) / math.sqrt(500)
        mean = float(times[:, column].mean())
        assert abs(mean - mean_tries(shares, tries)) < Z_OF_ONE_IN_A_MILLION * error


def test_counts_of_unique_draws_are_chances_by_the_time_of_the_draw() -> None:
    """1 - exp(-q tau), for candidates and positives; tau is later for candidates."""
    weights = log_uniform_weights(COUNTS)
    sampler = UniqueSampler(weights, 5, CPU)
    draw, positives = draw_of(sampler)
    before, after = sampler.times
    assert 0 < before < after
    q = weights / weights.sum()
    for ids, counts in ((draw.ids, draw.log_count), (positives, draw.positive_log_count)):
        taus = [after if item in draw.ids.tolist() else before for item in ids.tolist()]
        expected = [1 - math.exp(-q[item] * tau) for item, tau in zip(ids.tolist(), taus, strict=True)]
        assert counts.exp().tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("expected", [1, 2, 5, 11, 12, 500])
def test_chances_sum_to_the_number_expected(expected: int) -> None:
    """Those below one are in proportion to the weights, and the heaviest are certain."""
    weights = COUNTS.astype(np.float64)
    chances = inclusion_chances(weights, expected)
    assert chances.sum() == pytest.approx(min(expected, 12))
    assert (chances <= 1.0).all()
    factors = (chances / weights)[chances < 1.0]
    assert len(factors) == 0 or np.ptp(factors) < 1e-12
    # A certain item has no more than its proportional part would be.
    assert len(factors) == 0 or (weights[chances == 1.0] * factors[0] >= 1.0).all()


def test_a_draw_of_nothing_is_a_draw() -> None:
    """With one item expected of many the draw is sometimes empty: the loss is zero and has a gradient."""
    sampler = BernoulliSampler(np.ones(50), 1, CPU)
    positives = torch.tensor([1, 2])
    sizes = set()
    for step in range(20):
        context = DrawContext(
            stream(0, "draw", step), positives, torch.zeros(2, 4), torch.zeros(50, 4).__getitem__
        )
        draw = sampler.draw(torch.zeros(2, 4), positives, context)
        sizes.add(len(draw.ids))
        if not len(draw.ids):
            positive = torch.zeros(2, requires_grad=True)
            loss = sampled_softmax(positive, torch.zeros(2, 0), draw)
            assert loss.tolist() == [0.0, 0.0]
            assert torch.autograd.grad(loss.sum(), positive)[0].tolist() == [0.0, 0.0]
    assert {0, 1} < sizes


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


SCORES = torch.linspace(-1.0, 1.5, 12, dtype=torch.float64)
WEIGHTS = np.array([30.0, 20.0, 14.0, 9.0, 7.0, 5.0, 4.0, 3.0, 3.0, 2.0, 2.0, 1.0])
# 6 expected items in proportion to the weights, of which the greatest would be 1.8: it is certain, and so are
# those after it that would come to more than one of what is left.
CHANCES = np.array([1.0, 1.0, 1.0, *(3.0 * WEIGHTS[3:] / WEIGHTS[3:].sum())])


def replaced(u: Floats, q: Floats, size: int) -> float:
    """The variance of a sum of u estimated by `size` draws from q with replacement."""
    return float((u**2 / (q / q.sum())).sum() - u.sum() ** 2) / size


@pytest.mark.parametrize("kind", ["complement", "bernoulli", "exact head"])
def test_sums_over_the_others_have_the_variance_of_the_article(kind: str) -> None:
    """Botev et al. 2017: (sum u^2 / q - Z^2) / S with replacement, sum u^2 (1 / b - 1) item by item.

    An exact head adds no variance. To one chance in a million, by the fourth moment, and to a tenth.
    """
    positive, u = 2, np.exp(SCORES.numpy())
    others = np.arange(12) != positive
    sampler: Sampler = ComplementSampler(WEIGHTS, 6, CPU)
    steps, examples, variance = 20, 1000, replaced(u[others], WEIGHTS[others], 6)
    if kind == "bernoulli":
        sampler, steps, examples = BernoulliSampler(WEIGHTS, 6, CPU), 8000, 1
        assert sampler.log_counts.exp().tolist() == pytest.approx(CHANCES.tolist(), rel=1e-6)
        variance = float((u[others] ** 2 * (1.0 / CHANCES[others] - 1.0)).sum())
    if kind == "exact head":
        sampler, steps, examples = ExactHeadSampler(WEIGHTS, 3, 6, CPU), 8000, 1
        variance = replaced(u[3:], WEIGHTS[3:], 6)
    rows, query = torch.full((examples,), positive), torch.zeros(examples, 1)
    found = []
    for step in range(steps):
        draw = sampler.draw(query, rows, DrawContext(stream(0, "sums", step), rows, query, query.__getitem__))
        found.append(torch.where(draw.valid, (SCORES[draw.ids] - draw.log_count).exp(), 0.0).sum(dim=1))
    centred = torch.cat(found).numpy() - u[others].sum()
    count = len(centred)
    assert abs(centred.mean()) < Z_OF_ONE_IN_A_MILLION * math.sqrt(variance / count)
    error = math.sqrt(((centred**4).mean() - variance**2) / count)
    assert abs((centred**2).mean() - variance) < Z_OF_ONE_IN_A_MILLION * error < 0.15 * variance


EXCLUDING = [
    samplers.unigram(negatives=2, exclude_positive=True),
    samplers.log_uniform(negatives=2, exclude_positive=True),
    samplers.quadratic(negatives=2, alpha=5.0, exclude_positive=True),
    samplers.quartic(negatives=2, exclude_positive=True),
    samplers.softmax(negatives=2, exclude_positive=True),
]


@pytest.mark.parametrize("settings", EXCLUDING, ids=lambda one: one.kind)
def test_all_draws_without_the_positive_together_give_the_sum_over_the_others(
    settings: SamplerSettings,
) -> None:
    """The expectation over every draw of two of five items is the sum; with counts K q it is 1 - q_y off."""
    sampler, scores, positive = sampler_of(settings, items=5), np.linspace(-1.0, 2.0, 5), 2
    sampler.refresh(VECTORS[:5])
    query, positives = query_of(1).expand(400, -1), torch.full((400,), positive)
    draw = sampler.draw(query, positives, context_of(positives, VECTORS[:5]))
    counts = dict(zip(draw.ids.flatten().tolist(), draw.log_count.exp().flatten().tolist(), strict=True))
    assert sorted(counts) == [item for item in range(5) if item != positive]
    q = sampler.probability(query[:1])[0].tolist()
    q_others = [0.0 if item == positive else share / (1.0 - q[positive]) for item, share in enumerate(q)]
    total = sum(math.exp(scores[item]) for item in counts)
    for given, passes in ((counts, True), ({item: 2 * q[item] for item in counts}, False)):
        mean = sum(
            chance * sum(math.exp(scores[item]) / given[item] for item in drawn)
            for drawn, chance in all_draws(q_others, 2)
            if chance > 0
        )
        assert math.isclose(mean, total, rel_tol=1e-5) == passes


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


HALVES = np.array([8.0, 4.0, 2.0, 1.0, 1.0])


def shared_draw(items: tuple[int, ...], positives: list[int]) -> Draw:
    """The draw of S = 2 and S' = 1 from these items."""
    sampler, rows = SharedComplementSampler(HALVES, 2, 1, CPU), torch.tensor(positives)
    sampler.table = Fixed(items)
    query = torch.zeros(len(rows), 4)
    context = DrawContext(stream(0, "draw", 0), rows, query, torch.zeros(5, 4).__getitem__)
    return sampler.draw(query, rows, context)


def test_an_example_takes_what_others_have_to_leave() -> None:
    """Of items 0, 3, 0 the example of positive 0 has one, that of 3 both zeros, that of 1 the first two."""
    draw = shared_draw((0, 3, 0), [0, 3, 1])
    assert draw.valid.tolist() == [[False, True, False], [True, False, True], [True, True, False]]
    # 1 * (1/16) / (8/16); 2 * (8/16) / (15/16); 2 * (8/16) / (12/16).
    counts = draw.log_count.exp()
    assert [float(counts[0, 1]), float(counts[1, 0]), float(counts[2, 0])] == pytest.approx(
        [1 / 8, 16 / 15, 4 / 3]
    )


@pytest.mark.parametrize("positive", range(5))
def test_all_shared_draws_together_give_the_sum_over_the_others(positive: int) -> None:
    """Over all 125 draws of three, but for those of the positive alone; counts K q without 1 - q_y do not."""
    q, scores = (HALVES / HALVES.sum()).tolist(), np.linspace(-1.0, 2.0, 5)
    mean = masked_only = 0.0
    for items, chance in all_draws(q, 3):
        draw = shared_draw(items, [positive])
        terms = torch.from_numpy(np.exp(scores[list(items)])) * draw.valid[0]
        mean += chance * float((terms / draw.log_count[0].exp()).sum())
        masked_only += chance * sum(
            math.exp(scores[item]) / (2 * q[item])
            for item, valid in zip(items, draw.valid[0], strict=True)
            if valid
        )
    others = sum(math.exp(score) for item, score in enumerate(scores) if item != positive)
    assert mean == pytest.approx(others * (1.0 - q[positive] ** 3), rel=1e-5)
    assert masked_only != pytest.approx(others * (1.0 - q[positive] ** 3), rel=1e-2)
