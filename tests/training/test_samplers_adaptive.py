"""Samplers that follow the item vectors: dense kernels, random features, mined negatives, two passes."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.samplers import (
    COUNTS,
    CPU,
    ITEMS,
    VECTORS,
    Catalog,
    context_of,
    draw_of,
    query_of,
    sampler_of,
)
from tests.oracles.proposals import fourier_kernel, positive_proposal, shares
from turret.tower.config import ScoringConfig
from turret.training.randomness import stream
from turret.training.samplers.adaptive import dense as mined_module
from turret.training.samplers.adaptive.dense import (
    DenseSampler,
    LogKernel,
    SoftmaxConfig,
    TwoPassSampler,
    best_items,
    quartic_kernel,
    softmax_kernel,
)
from turret.training.samplers.adaptive.features import (
    FourierFeaturesConfig,
    FourierFeaturesSampler,
    PositiveFeaturesConfig,
    PositiveFeaturesSampler,
)
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.fixed.alias import unigram_weights

DOT = ScoringConfig(kind="dot", temperature=0.5)
ABSOLUTE = DOT.model_copy(update={"absolute": True})
# The kernel of a query and an item, in inner products over the temperature.
KERNELS: dict[str, tuple[LogKernel, Callable[[float], float]]] = {
    "softmax": (softmax_kernel(DOT), math.exp),
    "absolute softmax": (softmax_kernel(ABSOLUTE), lambda score: math.exp(abs(score))),
    "quartic": (quartic_kernel(DOT), lambda score: score**4 + 1.0),
}


def dense(kernel: LogKernel) -> DenseSampler:
    settings = SoftmaxConfig(negatives=10, refresh_every=3)
    sampler = DenseSampler(settings, BuildContext(Catalog(ITEMS), DOT, 0, CPU), kernel)
    sampler.refresh(VECTORS)
    return sampler


@pytest.mark.parametrize("name", KERNELS)
def test_dense_probabilities_are_those_of_the_kernel(name: str) -> None:
    """In proportion to its value for each item; symmetric kernels take h and -h for the same."""
    kernel, written_out = KERNELS[name]
    query = query_of(3)
    q, opposite = dense(kernel).probability(query), dense(kernel).probability(-query)
    for example, scores in enumerate((query.double() @ VECTORS.double().T / 0.5).tolist()):
        weights = [written_out(score) for score in scores]
        expected = [weight / sum(weights) for weight in weights]
        assert q[example].tolist() == pytest.approx(expected, rel=1e-4)
        assert max(expected) > 3 * min(expected)
    assert torch.allclose(q, opposite) is (name != "softmax")


def features_of(
    kind: str, vectors: Tensor, features: int = 24, sharpness: float = 2.0, negatives: int = 50
) -> PositiveFeaturesSampler | FourierFeaturesSampler:
    """A sampler by random features that follows these vectors."""
    made = PositiveFeaturesConfig if kind == "positive" else FourierFeaturesConfig
    settings = made(negatives=negatives, features=features, sharpness=sharpness, refresh_every=3)
    sampler = sampler_of(settings, len(vectors), ScoringConfig(kind="dot", temperature=1e-3))
    assert isinstance(sampler, PositiveFeaturesSampler | FourierFeaturesSampler)
    sampler.refresh(vectors)
    return sampler


def test_the_proposal_of_positive_features_is_the_sum_over_features() -> None:
    """For each query, what a loop over features and items says; it differs between queries."""
    sampler, query = features_of("positive", VECTORS), query_of(5)
    directions = sampler.directions.double().numpy() / math.sqrt(2.0)
    assert directions.shape == (24, 4)
    q = sampler.probability(query).numpy()
    for example in range(5):
        h = query[example].double().numpy()
        expected = positive_proposal(h, VECTORS.double().numpy(), directions, 2.0)
        np.testing.assert_allclose(q[example], expected, rtol=1e-4)
    assert np.abs(q[0] - q[1]).max() > 0.01


def test_the_proposal_of_fourier_features_is_the_softened_estimate() -> None:
    """k + sqrt(k^2 + 1 / 2F) of a loop over features and items; negative k are among them."""
    sampler, query = features_of("fourier", VECTORS), query_of(6)
    directions = sampler.directions.double().numpy() / math.sqrt(2.0)
    assert directions.shape == (24, 4)
    q, negative = sampler.probability(query).numpy(), 0
    for example in range(6):
        h = query[example].double().numpy()
        kernel = [fourier_kernel(h, w, directions, 2.0) for w in VECTORS.double().numpy()]
        negative += sum(k < 0 for k in kernel)
        np.testing.assert_allclose(
            q[example], shares([k + math.sqrt(k * k + 1 / 48) for k in kernel]), rtol=1e-4
        )
    assert negative > 5


def unit(count: int, purpose: str, width: int = 16) -> Tensor:
    drawn = torch.from_numpy(stream(0, purpose, 0).normal(size=(count, width))).float()
    return torch.nn.functional.normalize(drawn, dim=1)


@pytest.mark.parametrize(
    ("kind", "norm", "tolerance"),
    # Exponents of sharpness norm^2 are rounded to 6e-8 of themselves, and as much is a count off.
    [
        ("positive", 1.0, 1e-4),
        ("positive", 10.0, 2e-4),
        ("positive", 100.0, 2e-2),
        ("fourier", 1.0, 1e-4),
        ("fourier", 1000.0, 1e-4),
    ],
)
def test_long_vectors_and_sharp_kernels_stay_finite(kind: str, norm: float, tolerance: float) -> None:
    """Exponents of thousands give finite counts, which for all that is drawn are the closed form's."""
    items, query = norm * unit(300, "items"), norm * unit(16, "query")
    sampler, positives = features_of(kind, items, sharpness=20.0, negatives=64), torch.arange(16)
    draw = sampler.draw(query, positives, context_of(positives, items))
    assert draw.log_count.isfinite().all()
    assert draw.positive_log_count.isfinite().all()
    q = sampler.probability(query)
    torch.testing.assert_close(q.sum(dim=1), torch.ones(16), atol=max(0.1 * tolerance, 1e-5), rtol=0)
    torch.testing.assert_close(draw.log_count.exp(), 64 * q.gather(1, draw.ids), rtol=tolerance, atol=0)


def normal(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.from_numpy(stream(seed, "vectors", 0).normal(size=shape)).float()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("items", [1, 3, 7, 50])
def test_the_best_are_those_of_a_full_sort(
    monkeypatch: pytest.MonkeyPatch, items: int, absolute: bool
) -> None:
    """However the catalog and the batch are cut into blocks, also blocks smaller than the count."""
    monkeypatch.setattr(mined_module, "ITEMS", items)
    monkeypatch.setattr(mined_module, "EXAMPLES", 4)
    query, vectors = normal((9, 3), 0), normal((40, 3), 1)
    best = best_items(query, vectors, 6, absolute)
    assert best.shape == (9, 6)
    for user, rows in zip(query.double(), best.tolist(), strict=True):
        scores = [float(user @ item) for item in vectors.double()]
        key = [-abs(score) if absolute else -score for score in scores]
        assert set(rows) == set(sorted(range(40), key=key.__getitem__)[:6])


def test_counts_of_two_passes_are_those_of_both() -> None:
    """The count in the pool times K p2 of one copy, none for the positive, and q the copies' p2 together."""
    sampler = TwoPassSampler(unigram_weights(COUNTS, 0.75), 40, 6, DOT, CPU)
    draw, positives = draw_of(sampler)
    assert sampler.pool is not None
    weights, pool = (COUNTS + 1.0) ** 0.75, sampler.pool[0].tolist()
    first = (40 * weights / weights.sum()).tolist()
    scores = (query_of(64) @ VECTORS.T / 0.5).tolist()
    for example, (ids, positive) in enumerate(zip(draw.ids.tolist(), positives.tolist(), strict=True)):
        p2 = second_pass(scores[example], first, pool, positive)
        expected = [first[item] * 6 * p2[pool.index(item)] for item in ids]
        assert draw.log_count[example].exp().tolist() == pytest.approx(expected, rel=1e-4)
    assert (draw.positive_log_count == -math.inf).all()
    q = np.zeros(ITEMS)
    np.add.at(q, pool, second_pass(scores[3], first, pool, -1))
    np.testing.assert_allclose(sampler.probability(query_of(64))[3].numpy(), q, rtol=1e-4, atol=1e-6)
    assert (q == 0.0).any()


def second_pass(
    scores: Sequence[float], first: Sequence[float], pool: Sequence[int], positive: int
) -> list[float]:
    """p2 of each copy in the pool, by the counts `first` of the first pass; zero for the positive."""
    weights = [0.0 if item == positive else math.exp(scores[item]) / first[item] for item in pool]
    return [weight / sum(weights) for weight in weights]
