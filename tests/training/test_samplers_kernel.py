"""Samplers by kernels: sums, draws by rejection, by blocks and in tensors, and copies of item vectors."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.samplers import (
    CPU,
    DOT,
    VECTORS,
    Catalog,
    chi_square_limit,
    query_of,
    sampler_of,
)
from tests.oracles.proposals import kernel, kernel_shares
from turret.tower.config import ScoringConfig
from turret.training.errors import TrainingError
from turret.training.randomness import stream
from turret.training.samplers.adaptive.dense import SoftmaxConfig
from turret.training.samplers.core.contract import DrawContext, draw_by_inversion, relative
from turret.training.samplers.core.settings import BuildContext
from turret.training.samplers.core.snapshot import SnapshotSampler
from turret.training.samplers.kernel.compiled_draws import bounds, scale_of
from turret.training.samplers.kernel.quadratic import (
    BatchQuadraticSampler,
    KernelSums,
    QuadraticConfig,
    QuadraticSampler,
)

Make = Callable[..., KernelSums]


def unequal(rows: int, width: int, seed: int, spread: float = 1.0) -> NDArray[np.float32]:
    """Vectors whose norms differ by orders of magnitude."""
    random = np.random.default_rng(seed)
    lengths = np.exp(spread * random.standard_normal((rows, 1)))
    return (random.standard_normal((rows, width)) * lengths / math.sqrt(width)).astype(np.float32)


def drawn(sums: KernelSums, query: Tensor, count: int, excluded: int = -1, seed: int = 7) -> Tensor:
    counts, left_out = torch.full((len(query),), count), torch.full((len(query),), excluded)
    return sums.draw(query, sums.masses(query), counts, left_out, seed).view(len(query), count)


def statistic(ids: Tensor, q: NDArray[np.float64]) -> tuple[float, float]:
    """The chi-square value of the ids, cells of few expected hits put together, and its limit."""
    order = np.argsort(q)
    found, expected = np.bincount(ids.numpy().ravel(), minlength=len(q))[order], (q * ids.numel())[order]
    cell = np.unique(np.cumsum(expected) // 20, return_inverse=True)[1]
    found_in, expected_in = np.bincount(cell, found), np.bincount(cell, expected)
    full = expected_in > 5
    value = ((found_in - expected_in)[full] ** 2 / expected_in[full]).sum()
    return float(value), chi_square_limit(max(int(full.sum()) - 1, 1))


ALPHA = 100.0


def sums_of(vectors: NDArray[np.float32], block: int | None = 4, way: str = "") -> KernelSums:
    sums = KernelSums(torch.from_numpy(vectors.copy()), ALPHA, block)
    sums.most_work = {"rejection": math.inf, "blocks": 0.0}.get(way, sums.most_work)
    # In tensors as on a GPU, but for the device.
    sums.is_compiled = way != "tensors"
    return sums


@pytest.fixture(params=["rejection", "blocks", "tensors"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes sums that draw in one way alone, even where another would be cheaper."""
    return partial(sums_of, way=request.param)


@pytest.mark.parametrize("block", [1, 7])
def test_draws_follow_the_kernel(make: Make, block: int) -> None:
    """20,000 draws against the closed form; one in a million right programs fails."""
    vectors = unequal(60, 6, 1)
    query = torch.from_numpy(unequal(1, 6, 2))
    ids = drawn(make(vectors, block), query.repeat(8, 1), 2500)
    q = kernel_shares(ALPHA, query[0].numpy(), vectors)
    value, limit = statistic(ids, q)
    assert value < limit
    # The test can tell: against the uniform proposal the same draws fail.
    value, limit = statistic(ids, np.full(60, 1 / 60))
    assert value > 100 * limit


@pytest.mark.parametrize("excluded", [0, 3, 4, 7, 38, 39])
def test_just_that_row_is_left_out(make: Make, excluded: int) -> None:
    """At either end of a block and of the catalog; its neighbours are drawn as often as q says.

    The row has nearly all the mass, and its neighbours most of the rest.
    """
    random = np.random.default_rng(excluded)
    vectors = random.standard_normal((40, 5)).astype(np.float32)
    query = torch.from_numpy(random.standard_normal((1, 5)).astype(np.float32))
    direction = query[0].numpy() / float(query.norm())
    for row, length in ((excluded - 1, 5.0), (excluded + 1, 5.0), (excluded, 100.0)):
        vectors[row % 40] = length * direction
    q = kernel_shares(ALPHA, query[0].numpy(), vectors)
    q[excluded] = 0.0
    ids = drawn(make(vectors), query.repeat(4, 1), 1000, excluded=excluded)
    assert not (ids == excluded).any()
    value, limit = statistic(ids, q / q.sum())
    assert value < limit


@pytest.mark.parametrize(
    ("of_items", "of_queries"), [(1.0, 0.0), (1.0, 1e-20), (1.0, 1e15), (1e-37, 1e37), (1e36, 1e-36)]
)
def test_draws_follow_the_kernel_at_any_length(make: Make, of_items: float, of_queries: float) -> None:
    """A query of no length draws uniformly; a huge one by the squared inner product alone."""
    vectors, query = unequal(20, 4, 10, spread=0.2), torch.from_numpy(unequal(1, 4, 11)) / 3.0
    sums = (make if of_items == 1.0 else sums_of)((vectors * of_items).astype(np.float32))
    ids = drawn(sums, (query * of_queries).repeat(4, 1), 3000)
    tempered = (query[0].double() * of_items * of_queries).float().numpy()
    value, limit = statistic(ids, kernel_shares(ALPHA, tempered, vectors))
    assert value < limit


def test_a_query_at_right_angles_to_all_items_is_as_good_as_any(make: Make) -> None:
    """Z is hardly more than the count; sums in float32 would leave a rest of alpha |h|^2 |w|^2 1e-7."""
    vectors = np.zeros((500, 3), np.float32)
    vectors[:, 0] = 30.0
    vectors[:, 1] = np.float32(0.1)
    query = torch.tensor([[-0.1, 30.0, 0.0]])
    draws = make(vectors)
    exact = sum(kernel(ALPHA, query[0].tolist(), vector) for vector in vectors.tolist())
    assert draws.masses(query).item() == pytest.approx(exact, rel=1e-4)


def test_log_probabilities_are_those_of_the_closed_form(make: Make) -> None:
    """log K - log Z to 1e-4 for every item, from a catalog of one on; what is drawn are its rows."""
    for rows in (1, 2, 3, 17, 40):
        vectors, queries = unequal(rows, 5, rows), torch.from_numpy(unequal(3, 5, 99))
        sums, ids = make(vectors), torch.arange(rows).repeat(3, 1)
        log_q = (sums.kernels(queries, ids).log() - sums.masses(queries).log()[:, None]).numpy()
        for b in range(3):
            expected = np.log(kernel_shares(ALPHA, queries[b].numpy(), vectors))
            np.testing.assert_allclose(log_q[b], expected, atol=1e-4, rtol=0)
        ids = drawn(sums, queries, 20)
        assert int(ids.min()) >= 0
        assert int(ids.max()) < rows


def test_what_is_drawn_does_not_depend_on_threads() -> None:
    """The seed and the example decide alone."""
    vectors, queries = unequal(300, 8, 12), torch.from_numpy(unequal(64, 8, 13))
    draws, threads, ids = sums_of(vectors), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            ids.append(drawn(draws, queries, 9))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(ids[0], ids[1])
    assert torch.equal(ids[0], ids[2])
    assert not torch.equal(ids[0], drawn(draws, queries, 9, seed=8))


def scaled(rows: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    scales = 10.0 ** random.uniform(-3, 3, size=(rows, 1))
    return (random.standard_normal((rows, width)) * scales).astype(np.float32)


@given(st.integers(1, 70), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 100.0, 1e9]))
def test_no_kernel_is_above_its_bound(width: int, seed: int, alpha: float) -> None:
    """For vectors of any shape, those along the query and along an axis among them; bounds are tight."""
    query = scaled(1, width, seed)[0]
    along = [query, -query, np.float32(1e3) * query]
    vectors = np.concatenate([scaled(5, width, seed + 1), along, -np.eye(width, dtype=np.float32)])
    unit, scale, most = (np.empty(size, np.float32) for size in (width, 3, len(vectors)))
    greatest = float(np.linalg.norm(vectors.astype(float), axis=1).max())
    highest = scale_of(alpha, query, greatest, unit, scale)
    bounds(vectors, np.arange(len(vectors)), unit, scale, most)
    kernels = (alpha * (vectors.astype(float) @ query.astype(float)) ** 2 + 1.0) / highest
    assert (most >= kernels).all()
    assert (kernels <= 1.0).all()
    assert most.max() < kernels.max() * (1.0 + 1e-4) + 1e-4


def test_each_example_follows_its_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where four examples share proposals, whatever the others accept; one query's law is not another's."""
    monkeypatch.setattr("turret.training.samplers.kernel.quadratic.sharing", lambda acceptance: 4)
    vectors, queries = unequal(20, 6, 3), torch.from_numpy(unequal(4, 6, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sums = sums_of(vectors, way="rejection")
    ids = torch.stack([drawn(sums, queries, 5, seed=seed) for seed in range(1500)])
    for g in range(4):
        value, limit = statistic(ids[:, g].flatten(), kernel_shares(ALPHA, queries[g].numpy(), vectors))
        assert value < limit
        other, _ = statistic(ids[:, g].flatten(), kernel_shares(ALPHA, queries[g - 1].numpy(), vectors))
        assert other > limit


def made(
    vectors: Tensor, kind: type[QuadraticSampler] = QuadraticSampler, scoring: ScoringConfig = DOT
) -> QuadraticSampler:
    chosen = QuadraticConfig(negatives=50, alpha=5.0, refresh_every=3)
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
    context = DrawContext(stream(0, "draw", 0), torch.zeros(0), torch.zeros(0, 4), lambda rows: rows)
    with pytest.raises(TrainingError, match=r"example 1 .*learning_rate"):
        made(normal(5), kind).draw(query, torch.tensor([0, 1, 2]), context)


def test_the_proposal_of_an_example_is_the_kernel_and_that_of_a_batch_the_sum_of_kernels() -> None:
    """Of the tempered score. An example weighs as much as its sum of kernels: it is no mean of proposals."""
    query, scoring = query_of(5), ScoringConfig(kind="dot", temperature=0.5)
    query[0] *= 5.0
    tempered = query.numpy() / 0.5
    kernels = 5.0 * (tempered.astype(float) @ VECTORS.numpy().T) ** 2 + 1.0
    q = made(VECTORS, scoring=scoring).probability(query).numpy()
    for example in range(5):
        np.testing.assert_allclose(
            q[example], kernel_shares(5.0, tempered[example], VECTORS.numpy()), rtol=1e-5
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
    """The first such row is named, with a remedy, and the snapshot stays as it was."""
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
