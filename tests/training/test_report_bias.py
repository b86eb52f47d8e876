"""The bias, variance and divergence that a report gives, against sums and enumerations by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.samplers import Catalog
from turret.data.prepared import PreparedData
from turret.tower.config import ScoringConfig
from turret.training.batches.batches import PreparedStatistics, TrainingBatches
from turret.training.config.experiment import load_experiment
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.report.measures import (
    divergence,
    effective_share,
    gradient_error,
)
from turret.training.report.queries import Entry, Examples, Queries, drawer, read_examples
from turret.training.report.samplers import IN_BATCH_LOSSES
from turret.training.report.steps import moved_model
from turret.training.run import Run, build_model
from turret.training.samplers.core.contract import Sampler
from turret.training.samplers.core.draw import Draw, drawn_by_example
from turret.training.samplers.core.settings import SamplerContext, SamplerSettings
from turret.training.samplers.fixed.popularity import UniformConfig
from turret.training.samplers.from_batch.in_batch import InBatchConfig
from turret.training.samplers.registry import MixedConfig

FIVE, D, K = 5, 3, 2  # items, numbers of a vector, candidates
SHARP = ScoringConfig(kind="dot", temperature=0.5)
Floats = NDArray[np.float64]


def five_items() -> tuple[Examples, Tensor]:
    random = stream(1, "gradients", 0)
    users = torch.from_numpy(random.normal(size=(2, D))).float()
    vectors = torch.from_numpy(random.normal(size=(FIVE, D))).float()
    return Examples(users, torch.tensor([1, 3]), torch.tensor([0, 0])), vectors


Q = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def draw_of(ids: NDArray[np.int64], positives: Tensor, q: Floats = Q) -> Draw:
    """Each example's K candidates `ids` [2, K], drawn by q."""
    log_q = torch.from_numpy(np.log(q)).float()
    rows = torch.from_numpy(ids)
    return drawn_by_example(rows, log_q[rows], log_q[positives], positives)


def gradient(user: Tensor, terms: list[tuple[float, Tensor]], positive: Tensor) -> Tensor:
    """The gradient of log(sum of weight times exp s) - s_y by the user vector."""
    masses = [weight * math.exp(float(user @ vector)) for weight, vector in terms]
    pulled = sum((mass * term[1] for mass, term in zip(masses, terms, strict=True)), torch.zeros(3).double())
    return pulled / sum(masses) - positive


def enumerated_error() -> tuple[float, float]:
    """The relative bias and variance over all N^K draws, each as likely as q says."""
    given, vectors = five_items()
    items = vectors.double()
    squared_bias = variance = length = 0.0
    for user, own in zip(given.users.double() / SHARP.temperature, given.positives.tolist(), strict=True):
        exact = gradient(user, [(1.0, item) for item in items], items[own])
        mean, square = torch.zeros(D).double(), 0.0
        for ids in itertools.product(range(FIVE), repeat=K):
            drawn = [(1.0 / (K * Q[i]), items[i]) for i in ids if i != own]
            found = gradient(user, [(1.0, items[own]), *drawn], items[own])
            chance = math.prod(Q[i] for i in ids)
            mean += chance * found
            square += chance * float(found @ found)
        squared_bias += float((mean - exact).square().sum())
        variance += square - float(mean @ mean)
        length += float(exact @ exact)
    return math.sqrt(squared_bias / length), variance / length


def test_bias_and_variance_are_those_of_all_draws() -> None:
    """400 draws bring the bias within its bounds, here strictly, and the variance within a tenth."""
    given, vectors = five_items()
    random = stream(2, "gradients", 0)

    def draw_once(number: int) -> Draw:
        return draw_of(random.choice(FIVE, p=Q, size=(2, K)), given.positives)

    error = gradient_error(given, vectors, SHARP, draw_once, 400)
    bias, variance = enumerated_error()
    assert bias > 0.1
    assert 0.0 < error.bias_low < bias < error.bias_high
    assert error.variance == pytest.approx(variance, rel=0.1)


def test_the_effective_share_is_that_of_the_formula() -> None:
    """(sum w)^2 / sum w^2 / K of w = exp(s - l), where masked candidates count as drawn for nothing."""
    drawn = torch.tensor([[1.0, 2.0, 0.5], [3.0, 0.0, 0.0]])
    log_count = torch.tensor([0.0, 0.7, -1.0])
    valid = torch.tensor([[True, True, False], [False, False, False]])
    draw = Draw(torch.tensor([0, 1, 2]), log_count, torch.zeros(2), valid)
    weights = [math.exp(1.0), math.exp(1.3)]
    expected = sum(weights) ** 2 / sum(w * w for w in weights) / 3
    shares = effective_share(drawn, draw)
    assert shares.tolist() == pytest.approx([expected, 0.0])


def test_a_model_that_is_certain_has_no_gradient_to_compare_with() -> None:
    """The sentence says which settings give it one."""
    given, vectors = five_items()
    certain = Examples(1e4 * vectors[given.positives], given.positives, given.last_items)
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    ids = np.zeros((2, K), np.int64)
    with pytest.raises(TrainingError, match=r"zero gradient for all 2 queries.*--queries"):
        gradient_error(certain, vectors, SHARP, lambda _: draw_of(ids, given.positives), 4)


SIX, USERS = 6, 7
SMOOTH = ScoringConfig(kind="dot", temperature=0.7)


def given() -> tuple[Examples, Tensor, Tensor]:
    """Examples, item vectors and a strongly unequal proposal."""
    random = stream(1, "divergence", 0)
    users = torch.from_numpy(random.normal(size=(USERS, 3))).float()
    vectors = torch.from_numpy(random.normal(size=(SIX, 3))).float()
    weights = torch.from_numpy(random.exponential(size=(USERS, SIX)) ** 2).float()
    positives = torch.from_numpy(random.integers(SIX, size=USERS))
    return Examples(users, positives, positives), vectors, weights / weights.sum(dim=1, keepdim=True)


def test_the_divergence_is_that_of_the_formula() -> None:
    """Both distributions without the positive, summed item by item; None where an item is never drawn."""
    examples, vectors, proposal = given()
    kl = 0.0
    for row in range(USERS):
        own = int(examples.positives[row])
        others = [i for i in range(SIX) if i != own]
        scores = [float(examples.users[row].double() @ vectors[i].double()) / 0.7 for i in others]
        total = sum(math.exp(score) for score in scores)
        p = [math.exp(score) / total for score in scores]
        reached = sum(float(proposal[row, i]) for i in others)
        q = [float(proposal[row, i]) / reached for i in others]
        kl += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / USERS
    assert divergence(examples, vectors, SMOOTH, proposal) == pytest.approx(kl, rel=1e-4)
    proposal[:, 4] = 0.0
    assert divergence(examples, vectors, SMOOTH, proposal) is None


COUNTS = np.array([6, 3, 2, 1])
P = COUNTS / COUNTS.sum()
SCORING = ScoringConfig(kind="dot", temperature=1.0)


def handmade_queries() -> Queries:
    random = stream(3, "in-batch losses", 0)
    users, vectors = (torch.from_numpy(random.normal(size=(size, 3))).float() for size in (2, 4))
    examples = Examples(users, torch.tensor([0, 2]), torch.tensor([0, 0]))
    return Queries(examples, examples, vectors, np.cumsum(COUNTS), 3, 0)


def enumerated_bias(label: str) -> float:
    """The relative bias over the two other positives of a batch, each as likely as its frequency says."""
    given = handmade_queries()
    vectors = given.vectors.double()
    error = length = 0.0
    for user, y in zip(given.examples.users.double(), given.examples.positives.tolist(), strict=True):
        exact = gradient(user, [(1.0, vector) for vector in vectors], vectors[y])
        mean = torch.zeros(3).double()
        for others in itertools.product(range(4), repeat=2):
            own = 1.0 if label == "sampled_softmax" else 1.0 / (3 * P[y])
            counted = [i for i in others if label.endswith("hits kept") or i != y]
            terms = [(own, vectors[y]), *((1.0 / (3 * P[i]), vectors[i]) for i in counted)]
            mean += P[others[0]] * P[others[1]] * gradient(user, terms, vectors[y])
        error += float((mean - exact).square().sum())
        length += float(exact.square().sum())
    return math.sqrt(error / length)


@pytest.mark.parametrize("label", IN_BATCH_LOSSES)
def test_the_bias_of_a_loss_over_the_batch_is_that_of_all_batches(label: str) -> None:
    """Within its bounds of 500 batches, which tell the losses apart."""
    loss, queries = IN_BATCH_LOSSES[label], handmade_queries()
    entry = Entry("in-batch losses", None, InBatchConfig(), loss)
    sampler = entry.settings.build(SamplerContext(Catalog(4, COUNTS), SCORING, 0, torch.device("cpu")))
    draw_once = drawer(entry, sampler, queries)
    error = gradient_error(queries.examples, queries.vectors, SCORING, draw_once, 500, loss.build(4))
    assert error.bias_low < enumerated_bias(label) < error.bias_high
    assert error.bias_high - error.bias_low < 0.1


def test_every_training_example_can_come_and_none_comes_twice(handmade: PreparedData) -> None:
    """Their positives are those of an epoch, in some order; fewer are drawn at random."""
    experiment = load_experiment("youtubednn")
    model, batches = build_model(experiment, handmade), TrainingBatches.of(experiment, handmade, 4)
    every = read_examples(model, batches, 1000, stream(0, "test", 0))
    expected = torch.cat([batch.targets for batch in batches.epoch(stream(0, "order", 0))])
    assert len(every) == len(expected) == batches.example_count > 5
    assert sorted(every.positives.tolist()) == sorted(expected.tolist())
    draws = (read_examples(model, batches, 3, stream(seed, "test", 0)).positives for seed in range(9))
    some = {tuple(positives.tolist()) for positives in draws}
    assert {len(positives) for positives in some} == {3}
    assert len(some) > 3


BATCH = 32


@pytest.fixture(scope="module")
def queries(evaluated: Run, shop: PreparedData) -> Queries:
    model = evaluated.open_model(shop)
    examples = read_examples(model, TrainingBatches.of(evaluated.experiment, shop), 200, stream(0, "test", 0))
    vectors = model.current_vectors(torch.arange(len(shop.item_ids)))
    ends = np.cumsum(PreparedStatistics(shop).positive_counts())
    return Queries(examples.take(slice(0, 5)), examples.take(slice(5, None)), vectors, ends, BATCH, seed=0)


def made(settings: SamplerSettings, queries: Queries, shop: PreparedData) -> Sampler:
    statistics = PreparedStatistics(shop)
    sampler = settings.build(SamplerContext(statistics, ScoringConfig(), 0, torch.device("cpu")))
    sampler.refresh(queries.vectors)
    return sampler


IN_BATCH = InBatchConfig(kind="in_batch")


@pytest.mark.parametrize(
    "settings", [IN_BATCH, MixedConfig(kind="mixed", parts=(IN_BATCH, UniformConfig(negatives=6)))], ids=str
)
def test_a_query_sees_the_others_of_a_batch_and_not_itself(
    settings: SamplerSettings, queries: Queries, shop: PreparedData
) -> None:
    """B - 1 positives of others; its own item is masked wherever it comes, and nothing else."""
    draw = drawer(Entry("some", None, settings), made(settings, queries, shop), queries)(0)
    own = draw.ids == queries.examples.positives[:, None]
    assert draw.valid.shape == (5, len(draw.ids))
    assert not draw.valid[:, 0].any()
    assert torch.equal(draw.valid[:, 1:], ~own[:, 1:])


def test_the_run_s_own_model_stays_and_the_way_is_repeated(evaluated: Run, shop: PreparedData) -> None:
    """The copy moves by the seed alone."""
    rows = torch.arange(len(shop.item_ids))
    original = evaluated.open_model(shop).current_vectors(rows)
    first, second = (moved_model(evaluated, shop, {2: []}).current_vectors(rows) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, original)
