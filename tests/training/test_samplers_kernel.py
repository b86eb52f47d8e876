"""The quadratic kernel: its sums in two forms, draws by rejection and by blocks, and the samplers by it."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.kernel_sums import ALPHA, KernelSumsContract, drawn, statistic, unequal
from tests.contracts.samplers import CPU
from tests.oracles.quadratic_kernel import shares
from turret.training.samplers.kernel.rejection import bounds_of
from turret.training.samplers.kernel.sums import CodedSums, TensorSums


def coded(vectors: NDArray[np.float32], block: int = 4, way: str = "") -> CodedSums:
    sums = CodedSums(len(vectors), vectors.shape[1], ALPHA, block)
    sums.update(torch.arange(len(vectors)), torch.from_numpy(vectors))
    sums.most_work = {"rejection": math.inf, "blocks": 0.0}.get(way, sums.most_work)
    return sums


class TestRejection(KernelSumsContract):
    def make(self, vectors: NDArray[np.float32], block: int = 4) -> CodedSums:
        return coded(vectors, block, way="rejection")


class TestBlocks(KernelSumsContract):
    def make(self, vectors: NDArray[np.float32], block: int = 4) -> CodedSums:
        return coded(vectors, block, way="blocks")


@pytest.mark.parametrize("scale", [1e-37, 1e36])
def test_draws_follow_the_kernel_at_any_length(scale: float) -> None:
    """Of items, and of queries that are as much shorter as items are longer."""
    vectors = unequal(30, 5, 21, spread=0.3)
    query = torch.from_numpy(unequal(1, 5, 22)) / 3.0
    ids = drawn(coded((vectors * scale).astype(np.float32)), (query / scale).repeat(4, 1), 3000)
    value, limit = statistic(ids, shares(ALPHA, query[0].numpy(), vectors))
    assert value < limit


def test_what_is_drawn_does_not_depend_on_threads() -> None:
    """The seed and the example decide alone."""
    vectors, queries = unequal(300, 8, 12), torch.from_numpy(unequal(64, 8, 13))
    draws, threads, ids = coded(vectors), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            ids.append(drawn(draws, queries, 9))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(ids[0], ids[1])
    assert torch.equal(ids[0], ids[2])
    assert not torch.equal(ids[0], drawn(draws, queries, 9, seed=8))


class TestTensors(KernelSumsContract):
    """The form on a GPU, but for the device."""

    def make(self, vectors: NDArray[np.float32], block: int = 4) -> TensorSums:
        return tensors(vectors, block)


def tensors(vectors: NDArray[np.float32], block: int | None) -> TensorSums:
    sums = TensorSums(len(vectors), vectors.shape[1], ALPHA, CPU, block)
    sums.update(torch.arange(len(vectors)), torch.from_numpy(vectors))
    return sums


VECTORS = unequal(20, 6, 3)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
QUERIES = torch.from_numpy(unequal(4, 6, 4))


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> CodedSums:
    """Draws by rejection in which four examples share proposals, though so few items are accepted often."""
    monkeypatch.setattr("turret.training.samplers.kernel.sums.sharing", lambda acceptance: 4)
    made = CodedSums(20, 6, ALPHA, 4)
    made.update(torch.arange(20), torch.from_numpy(VECTORS))
    made.most_work = math.inf
    return made


def many(draws: CodedSums, queries: Tensor, size: int, times: int = 1500) -> Tensor:
    """What `times` batches of four examples draw: [times, 4, size]."""
    return torch.stack([drawn(draws, queries, size, seed=seed).view(4, size) for seed in range(times)])


def test_each_example_follows_its_own_kernel(draws: CodedSums) -> None:
    """Whatever the others accept of the proposals; one query's law is not another's."""
    ids = many(draws, QUERIES, 5)
    for g in range(4):
        value, limit = statistic(ids[:, g].flatten(), shares(ALPHA, QUERIES[g].numpy(), VECTORS))
        assert value < limit
        other, _ = statistic(ids[:, g].flatten(), shares(ALPHA, QUERIES[g - 1].numpy(), VECTORS))
        assert other > limit


def bounds_and_kernels(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], alpha: float
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The bounds [G, N] as the test of proposals has them, and the exact kernels, over the highest ones."""
    rows, width = vectors.shape
    sums = CodedSums(rows, width, alpha)
    sums.update(torch.arange(rows), torch.from_numpy(vectors))
    squares = (queries.astype(float) ** 2).sum(axis=1)
    bounds = bounds_of(alpha, queries, squares, sums.greatest_norm)
    products = (bounds.whole.astype(np.int64) @ sums.coded.high.T.astype(np.int64)).astype(np.float32)
    lengths = (sums.coded.norms / np.float64(sums.greatest_norm)).astype(np.float32)
    near = np.abs(products * bounds.step[:, None] + bounds.middle[:, None]) + bounds.slack[:, None]
    exact = queries.astype(float) @ sums.vectors(torch.arange(rows)).numpy().T
    kernels = (alpha * exact**2 + 1.0) / bounds.highest[:, None]
    return (near * lengths) ** 2 + bounds.least[:, None], kernels


@pytest.mark.parametrize("alpha", [1.0, 100.0, 1e9])
def test_no_kernel_is_above_its_bound(alpha: float) -> None:
    """Of vectors and queries of all lengths; nor is a bound of the highest kernel exceeded."""
    for seed in range(20):
        bounds, kernels = bounds_and_kernels(unequal(300, 33, seed), unequal(8, 33, 100 + seed), alpha)
        assert (bounds >= kernels).all()
        assert (kernels <= 1.0).all()


def test_the_bound_covers_the_rounding_of_the_query() -> None:
    """Where low parts and the query are rounded as far as they can be, both the wrong way.

    Each coordinate of the row is -1/8, which is a high byte alone, and each but one of the query lies just
    below the middle of two of its 32,767 steps. The bound is then hardly above the kernel.
    """
    vectors, query = np.full((1, 64), -0.125, np.float32), np.full((1, 64), 32766.49 / 32767.0, np.float32)
    query[0, 0] = 1.0
    bounds, kernels = bounds_and_kernels(vectors, query, 1e9)
    assert bounds[0, 0] >= kernels[0, 0]
    assert bounds[0, 0] < kernels[0, 0] * (1.0 + 1e-4)
