"""The samplers by the quadratic kernel, and the snapshots that samplers by item vectors keep."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.samplers import (
    CPU,
    DOT,
    VECTORS,
    Catalog,
    query_of,
    sampler_of,
)
from tests.oracles.proposals import kernel_shares
from turret.tower.config import ScoringConfig
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import SoftmaxConfig
from turret.training.samplers.core.contract import DrawContext, draw_by_inversion, relative
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.core.snapshot import SnapshotSampler
from turret.training.samplers.kernel.quadratic import BatchQuadraticSampler, QuadraticConfig, QuadraticSampler

ALPHA = 5.0


def made(
    vectors: Tensor, kind: type[QuadraticSampler] = QuadraticSampler, scoring: ScoringConfig = DOT
) -> QuadraticSampler:
    chosen = QuadraticConfig(negatives=50, alpha=ALPHA, refresh_every=3)
    sampler = kind(chosen, BuildContext(Catalog(len(vectors)), scoring, 0, CPU))
    sampler.refresh(vectors)
    return sampler


def normal(rows: int, width: int = 4, seed: int = 0) -> Tensor:
    return torch.from_numpy(stream(seed, "vectors", rows).normal(size=(rows, width))).float()


@pytest.mark.parametrize("kind", [QuadraticSampler, BatchQuadraticSampler])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_user_vectors_that_are_not_finite_are_refused(kind: type[QuadraticSampler], bad: float) -> None:
    """Rejection would never end by such a query; the example is named."""
    query = normal(3)
    query[1, 2] = bad
    with pytest.raises(TrainingError, match=r"example 1 .*learning_rate"):
        made(normal(5), kind).draw(query, torch.tensor([0, 1, 2]), no_vectors())


def no_vectors(step: int = 0) -> DrawContext:
    return DrawContext(stream(0, "draw", step), torch.zeros(0), torch.zeros(0, 4), lambda rows: rows)


def test_the_proposal_of_an_example_is_the_kernel_and_that_of_a_batch_the_sum_of_kernels() -> None:
    """Of the tempered score. An example weighs as much as its sum of kernels: it is no mean of proposals."""
    query, scoring = query_of(5), ScoringConfig(kind="dot", temperature=0.5)
    query[0] *= 5.0
    tempered = query.numpy() / 0.5
    kernels = ALPHA * (tempered.astype(float) @ VECTORS.numpy().T) ** 2 + 1.0
    q = made(VECTORS, scoring=scoring).probability(query).numpy()
    for example in range(5):
        np.testing.assert_allclose(
            q[example], kernel_shares(ALPHA, tempered[example], VECTORS.numpy()), rtol=1e-5
        )
    assert np.abs(q[0] - q[1]).max() > 0.05
    assert np.abs(q - made(VECTORS).probability(query).numpy()).max() > 0.01
    together = made(VECTORS, BatchQuadraticSampler, scoring).probability(query).numpy()
    np.testing.assert_allclose(together[0], kernels.sum(axis=0) / kernels.sum(), rtol=1e-5)
    assert np.abs(together[0] - q.mean(axis=0)).max() > 0.01


def rows_of(value: float = 0.0) -> Tensor:
    return torch.arange(10)[:, None] + torch.tensor([value, -value])


def snapshot_sampler() -> SnapshotSampler:
    sampler = sampler_of(SoftmaxConfig(refresh_every=4), items=10)
    assert isinstance(sampler, SnapshotSampler)
    return sampler


def test_the_snapshot_is_a_copy() -> None:
    """What happens to the given vectors afterwards does not show."""
    given, snapshot = rows_of(), snapshot_sampler()
    snapshot.refresh(given)
    given.zero_()
    assert torch.equal(snapshot.vectors, rows_of())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_vectors_that_are_not_finite_are_refused(bad: float) -> None:
    """The first such row is named, with what to do, and the snapshot stays as it was."""
    broken = rows_of(1.0)
    broken[4:6, 1] = bad
    snapshot = snapshot_sampler()
    snapshot.refresh(rows_of())
    with pytest.raises(TrainingError, match=r"row 4 .*lower training.learning_rate or raise tower.scoring"):
        snapshot.refresh(broken)
    snapshot.update(rows_of().__getitem__)
    with pytest.raises(TrainingError, match="row 4 "):
        snapshot.update(broken.__getitem__)
    assert torch.equal(snapshot.vectors, rows_of())
    assert snapshot.position == 3


def test_a_tail_behind_many_items_is_reached() -> None:
    """Weights behind a sum of 2^25 are still drawn, which float32 sums would lose."""
    log_weights = torch.cat([torch.tensor([25 * math.log(2.0)]), torch.zeros(1000)])[None]
    position = torch.tensor([[1.0 - 1e-12, 1.0 - 500 / (2**25 + 1000)]]).double()
    found = draw_by_inversion(relative(log_weights), position)[0][0].tolist()
    assert found[0] == 1000
    assert abs(found[1] - 501) <= 1
