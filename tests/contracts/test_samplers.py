"""The contract of every sampler: unbiased counts, draws from its proposal, masks, states and snapshots."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.contracts.samplers import (
    COUNTS,
    CPU,
    DOT,
    ITEMS,
    VECTORS,
    Z_OF_ONE_IN_A_MILLION,
    Catalog,
    chi_square_limit,
    context_of,
    follows,
    positives_of,
    query_of,
)
from turret.training import Estimator, losses, samplers
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.core.contract import CountingSampler, Draw, DrawContext, Sampler
from turret.training.samplers.core.settings import BuildContext, SamplerSettings
from turret.training.samplers.registry import SAMPLERS

SIZE = 64
QUERY = query_of(SIZE)
# Candidates that tell a distribution, and the fewest and most steps that draw them.
CANDIDATES, FEWEST, MOST = 40_000, 100, 400


# One of each kind, sized so that a few hundred draws tell its distribution, and its variants.
EVERY_SAMPLER: list[SamplerSettings] = [
    samplers.uniform(negatives=50),
    samplers.uniform(negatives=50, exclude_positive=True),
    samplers.log_uniform(negatives=50),
    samplers.log_uniform(negatives=50, exclude_positive=True),
    samplers.log_uniform(negatives=5, unique=True),
    samplers.unigram(negatives=50),
    samplers.unigram(negatives=50, exclude_positive=True),
    samplers.unigram(negatives=10, exclude_positive=True, spare=4),
    samplers.bigram(negatives=50),
    samplers.adaptive_ngram(negatives=50, publish_every=2),
    samplers.bernoulli(negatives=5),
    samplers.exact_head(negatives=6, exact=3),
    samplers.in_batch(),
    samplers.in_batch(unique=True),
    samplers.cross_batch(batches=2),
    samplers.mined(negatives=5, refresh_every=3),
    samplers.quadratic(negatives=50, alpha=5.0, refresh_every=3),
    samplers.quadratic(negatives=50, alpha=5.0, exclude_positive=True),
    samplers.quadratic(negatives=50, alpha=5.0, per="batch"),
    samplers.quartic(negatives=50, refresh_every=3),
    samplers.quartic(negatives=50, exclude_positive=True),
    samplers.softmax(negatives=50, refresh_every=3),
    samplers.softmax(negatives=50, exclude_positive=True),
    samplers.positive_features(negatives=50, features=24, sharpness=1.0, refresh_every=3),
    samplers.fourier_features(negatives=50, features=24, refresh_every=3),
    samplers.two_pass(negatives=6, pool=40),
    samplers.mixed(parts=[samplers.in_batch(), samplers.uniform(negatives=50)]),
    samplers.mixed(
        parts=[
            samplers.cross_batch(batches=1),
            samplers.mined(negatives=4, refresh_every=3),
            samplers.unigram(negatives=20),
        ]
    ),
]


def context_at(step: int, size: int = SIZE) -> DrawContext:
    """The context of a step, in which the newest items are not the positives."""
    last = torch.from_numpy(stream(5, "last", step).integers(ITEMS, size=size))
    return replace(context_of(positives_of(size, step), step=step), last=last)


@dataclass(frozen=True)
class Trial:
    """A sampler's settings, and steps of it."""

    settings: SamplerSettings
    absolute: bool = False

    def built(self) -> Sampler:
        scoring = DOT.model_copy(update={"absolute": self.absolute})
        return self.settings.build(BuildContext(Catalog(ITEMS, COUNTS, follows()), scoring, 0, CPU))

    def made(self) -> Sampler:
        """A sampler that has copied the item vectors, and has made its first draws."""
        sampler = self.built()
        sampler.refresh(VECTORS)
        for step in range(max(1, self.settings.remembered_batches)):
            self.draw(sampler, 1_000_000 + step)
        return sampler

    def draw(self, sampler: Sampler, step: int, query: Tensor = QUERY) -> Draw:
        """The draw of a step, with the right shapes and rows."""
        size = len(query)
        positives = positives_of(size, step)
        draw = sampler.draw(query, positives, context_at(step, size))
        drawn = draw.ids.shape[-1]
        assert draw.ids.shape in ((drawn,), (size, drawn))
        assert draw.log_count.shape in (draw.ids.shape, (size, drawn))
        assert draw.positive_log_count.shape == (size,)
        assert draw.valid.shape == (size, drawn)
        assert ((draw.ids >= 0) & (draw.ids < ITEMS)).all()
        return draw

    def probability(self, sampler: Sampler, query: Tensor = QUERY, step: int = 0) -> Tensor:
        return sampler.probability(query, context_at(step))

    def proposal(self, sampler: Sampler, step: int) -> Tensor:
        """The probabilities [B, N] of a step's candidates, without the positive where it is left out."""
        q = self.probability(sampler, step=step)
        if self.settings.counts_positives:
            return q
        q = q.scatter(1, positives_of(SIZE, step)[:, None], 0.0)
        return q / q.sum(dim=1, keepdim=True)


def same(one: Draw, other: Draw) -> bool:
    return torch.equal(one.ids, other.ids) and torch.equal(one.log_count, other.log_count)


def of_every_sampler(condition: Callable[[SamplerSettings], bool] = lambda _: True) -> pytest.MarkDecorator:
    fitting = [settings for settings in EVERY_SAMPLER if condition(settings)]
    trials = [Trial(settings) for settings in fitting]
    return pytest.mark.parametrize("trial", trials, ids=[str(one)[5:60] for one in fitting])


def test_every_kind_is_listed() -> None:
    assert {settings.kind for settings in EVERY_SAMPLER} == SAMPLERS.keys()


@of_every_sampler()
def test_probabilities_sum_to_one(trial: Trial) -> None:
    q = trial.probability(trial.made())
    assert q.shape == (SIZE, ITEMS)
    assert (q >= 0.0).all()
    torch.testing.assert_close(q.sum(dim=1), torch.ones(SIZE))


@of_every_sampler()
def test_masks_and_counts_of_a_draw(trial: Trial) -> None:
    """The positive is masked and nothing else; the draw depends on its random stream alone."""
    sampler, positives = trial.made(), positives_of(SIZE)
    draw = trial.draw(sampler, 0)
    hits = draw.ids.expand(SIZE, -1) == positives[:, None]
    assert not (hits & draw.valid).any()
    if trial.settings.counts_positives:
        assert (hits | draw.valid).all()
    else:
        assert (draw.positive_log_count == -math.inf).all()
    assert draw.log_count.isfinite().all()
    if trial.settings.fixed_size:
        assert len({trial.draw(sampler, step).ids.shape[-1] for step in range(20)}) == 1
    assert same(trial.draw(trial.made(), 0), draw)
    half = QUERY.bfloat16()
    found, expected = (trial.draw(trial.made(), 1, query) for query in (half, half.float()))
    assert same(found, expected)
    assert found.log_count.dtype == found.positive_log_count.dtype == torch.float32
    trial.draw(trial.made(), 2, QUERY[:1])


@of_every_sampler()
def test_a_restored_sampler_draws_as_the_original(trial: Trial) -> None:
    """Also after it has learned."""
    original, other = trial.made(), trial.built()
    for step in range(3):
        draw = trial.draw(original, step)
        if original.observes_scores:
            scores = torch.from_numpy(stream(9, "scores", step).normal(size=(SIZE, draw.ids.shape[-1] + 1)))
            original.observe(draw, scores[:, 0].float(), scores[:, 1:].float())
        original.update(lambda rows: 0.5 * VECTORS[rows])
    other.restore({name: tensor.clone() for name, tensor in original.state().items()})
    for step in range(3, 5):
        assert same(trial.draw(original, step), trial.draw(other, step))


@of_every_sampler(lambda settings: settings.alone)
def test_every_item_weighs_one_in_the_estimated_sum_and_draws_follow_q(trial: Trial) -> None:
    """A draw that never holds an item twice, as one without replacement, is told by the sums alone."""
    weights, drawn, expected, repeats = [], np.zeros(ITEMS), np.zeros(ITEMS), False
    counts_positives = trial.settings.counts_positives
    for draw, positives, q in independent_draws(trial):
        ids = draw.ids.expand(SIZE, -1)
        counted = draw.valid | ((ids == positives[:, None]) & counts_positives)
        weights.append(weights_of(draw, counted, positives, counts_positives))
        # Of candidates that examples share, one example's are counted: the others have the same.
        alone = slice(1 if draw.ids.dim() == 1 or draw.shared else None)
        drawn += np.bincount(ids[alone][counted[alone]].numpy(), minlength=ITEMS)
        expected += (counted[alone].sum(dim=1, keepdim=True) * q[alone]).sum(dim=0).double().numpy()
        repeats = repeats or len(set(ids[0].tolist())) < ids.shape[1]
    seen = torch.stack(weights)
    mean, error = seen.mean(dim=0), seen.std(dim=0) / math.sqrt(len(seen))
    assert ((mean - 1.0).abs() <= Z_OF_ONE_IN_A_MILLION * error + 1e-3).all(), mean
    if repeats:
        reached = expected > 0
        assert not drawn[~reached].any()
        statistic = float(((drawn - expected)[reached] ** 2 / expected[reached]).sum())
        assert statistic < chi_square_limit(int(reached.sum()) - 1)


def independent_draws(trial: Trial) -> Iterator[tuple[Draw, Tensor, Tensor]]:
    """Draws, their positives, and the distribution of each example's candidates."""
    sampler, apart = trial.made(), max(1, trial.settings.remembered_batches)
    candidates = trial.draw(sampler, 0).ids.numel()
    for number in range(1, 1 + min(MOST, max(FEWEST, CANDIDATES // max(1, candidates)))):
        for step in range(number * apart, (number + 1) * apart):
            draw = trial.draw(sampler, step)
        yield draw, positives_of(SIZE, step), trial.proposal(sampler, step)


def weights_of(draw: Draw, counted: Tensor, positives: Tensor, counts_positives: bool) -> Tensor:
    """The weight of each item in a step's estimate of sum_i exp(s_i), a sum of exp(s_j - l_j): [N].

    Accidental hits count, as they do in the sum over the whole catalog; where the positive is left out of a
    draw, each item is looked at in the examples of the others.
    """
    terms = torch.where(counted, (-draw.log_count.double()).exp(), 0.0)
    by_item = torch.zeros(SIZE, ITEMS, dtype=torch.float64)
    by_item.scatter_add_(1, draw.ids.expand(SIZE, -1), terms)
    if counts_positives:
        return by_item.mean(dim=0)
    others = torch.arange(ITEMS) != positives[:, None]
    return (by_item * others).sum(dim=0) / others.sum(dim=0)


@of_every_sampler(lambda settings: settings.counts_positives)
def test_a_mixable_sampler_counts_any_item_as_its_draws_do(trial: Trial) -> None:
    sampler, positives = trial.made(), positives_of(SIZE)
    if not isinstance(sampler, CountingSampler):
        assert not trial.settings.mixable
        return
    draw, everything = trial.draw(sampler, 0), torch.arange(ITEMS)
    drawn, own, shared, repeated = (
        sampler.log_expected(QUERY, positives, ids)
        for ids in (draw.ids, positives[:, None], everything, everything.expand(SIZE, -1))
    )
    close = partial(torch.testing.assert_close, atol=1e-4, rtol=1e-5)
    close(drawn.expand(draw.log_count.shape), draw.log_count)
    close(own[:, 0], draw.positive_log_count)
    close(repeated, shared.expand(SIZE, -1))


@of_every_sampler(lambda settings: Trial(settings).built().holds_vectors)
def test_a_sampler_by_vectors_draws_by_the_last_refresh_or_by_updates(trial: Trial) -> None:
    """A whole round of updates is one refresh; broken vectors and draws before the first are refused."""
    moved = VECTORS.flip(0)
    sampler, followed = trial.made(), trial.made()
    before = trial.probability(sampler)
    sampler.refresh(moved)
    trial.draw(sampler, 0)
    after = trial.probability(sampler)
    assert not torch.allclose(before, after, rtol=1e-3)
    for _ in range(max(int(getattr(part, "refresh_every", 1)) for part in trial.settings.members)):
        followed.update(moved.__getitem__)
    trial.draw(followed, 0)
    torch.testing.assert_close(trial.probability(followed), after, rtol=1e-5, atol=1e-6)
    broken = VECTORS.clone()
    broken[7, 1] = math.nan
    for vectors in (broken, torch.zeros(ITEMS + 1, 4)):
        with pytest.raises(TrainingError):
            trial.made().refresh(vectors)
    with pytest.raises(TrainingError):
        trial.draw(trial.built(), 0)


@of_every_sampler()
def test_h_and_minus_h_have_the_same_probabilities_if_the_sampler_is_symmetric(trial: Trial) -> None:
    absolute = replace(trial, absolute=True)
    found = []
    for query in (QUERY, -QUERY):
        sampler = absolute.made()
        absolute.draw(sampler, 0, query)
        found.append(absolute.probability(sampler, query))
    near, far = found
    assert torch.allclose(near, far, rtol=1e-4, atol=1e-6) is trial.settings.symmetric


@of_every_sampler()
def test_both_towers_train_in_an_estimator(trial: Trial) -> None:
    """And a restored one has the loss of the stored one."""
    settings = trial.settings
    if not settings.alone:
        settings = samplers.mixed(parts=[samplers.uniform(negatives=8), settings])
    torch.manual_seed(0)
    users, items = nn.Embedding(SIZE, 8), nn.Embedding(ITEMS, 8)
    positives = torch.from_numpy(np.repeat(np.arange(ITEMS), SIZE // ITEMS + 1)[:SIZE])
    pairs = (positives[:-1], positives[1:])
    estimate, other = (
        Estimator(losses.sampled_softmax(), settings, items=ITEMS, counts=COUNTS, following=pairs)
        for _ in range(2)
    )
    everyone = torch.arange(SIZE)

    def mean_loss() -> float:
        scores = users.weight @ items.weight.T
        return float(nn.functional.cross_entropy(scores.detach(), positives))

    first = mean_loss()
    optimiser = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.05)
    estimate.refresh(items)
    for _ in range(40):
        optimiser.zero_grad()
        torch.autograd.backward(estimate(users(everyone), positives, items, last_items=positives).loss)
        optimiser.step()
        estimate.update(items)
    assert mean_loss() < 0.7 * first
    other.load_state_dict(estimate.state_dict())
    found, expected = (
        one(users(everyone), positives, items, last_items=positives).loss for one in (other, estimate)
    )
    assert torch.equal(found, expected)
