"""What every form of the quadratic kernel's sums has to pass, drawing in one way alone."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.samplers import chi_square_limit
from tests.oracles.quadratic_kernel import kernel, shares
from turret.training.samplers.kernel.sums import KernelSums


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


class KernelSumsContract:
    """The suite: alpha = 100, draws by one way even where another would be cheaper."""

    def make(self, vectors: NDArray[np.float32], block: int = 4) -> KernelSums:
        raise NotImplementedError

    @pytest.mark.parametrize("block", [1, 7])
    def test_draws_follow_the_kernel(self, block: int) -> None:
        """20,000 draws against the closed form; one in a million right programs fails."""
        vectors = unequal(60, 6, 1)
        query = torch.from_numpy(unequal(1, 6, 2))
        ids = drawn(self.make(vectors, block), query.repeat(8, 1), 2500)
        q = shares(ALPHA, query[0].numpy(), vectors)
        value, limit = statistic(ids, q)
        assert value < limit
        # The test can tell: against the uniform proposal the same draws fail.
        value, limit = statistic(ids, np.full(60, 1 / 60))
        assert value > 100 * limit

    @pytest.mark.parametrize("excluded", [0, 3, 4, 7, 38, 39])
    def test_just_that_row_is_left_out(self, excluded: int) -> None:
        """At either end of a block and of the catalog; its neighbours are drawn as often as q says.

        The row has nearly all the mass, and its neighbours most of the rest.
        """
        random = np.random.default_rng(excluded)
        vectors = random.standard_normal((40, 5)).astype(np.float32)
        query = torch.from_numpy(random.standard_normal((1, 5)).astype(np.float32))
        direction = query[0].numpy() / float(query.norm())
        for row, length in ((excluded - 1, 5.0), (excluded + 1, 5.0), (excluded, 100.0)):
            vectors[row % 40] = length * direction
        q = shares(ALPHA, query[0].numpy(), vectors)
        q[excluded] = 0.0
        ids = drawn(self.make(vectors), query.repeat(4, 1), 1000, excluded=excluded)
        assert not (ids == excluded).any()
        value, limit = statistic(ids, q / q.sum())
        assert value < limit

    @pytest.mark.parametrize("scale", [0.0, 1e-20, 1e15])
    def test_extreme_queries_are_drawn_by(self, scale: float) -> None:
        """A query of no length draws uniformly; a huge one by the squared inner product alone."""
        vectors = unequal(20, 4, 10, spread=0.2)
        query = torch.from_numpy(unequal(1, 4, 11)) * scale
        ids = drawn(self.make(vectors), query.repeat(4, 1), 5000)
        value, limit = statistic(ids, shares(ALPHA, query[0].numpy(), vectors))
        assert value < limit

    def test_a_query_at_right_angles_to_all_items_is_as_good_as_any(self) -> None:
        """Z is hardly more than the count; sums in float32 would leave a rest of alpha |h|^2 |w|^2 1e-7."""
        vectors = np.zeros((500, 3), np.float32)
        vectors[:, 0] = 30.0
        vectors[:, 1] = np.float32(0.1)
        query = torch.tensor([[-0.1, 30.0, 0.0]])
        draws = self.make(vectors)
        exact = sum(kernel(ALPHA, query[0].tolist(), vector) for vector in vectors.tolist())
        assert draws.masses(query).item() == pytest.approx(exact, rel=1e-4)

    def test_a_restored_state_draws_the_same(self) -> None:
        """Bit for bit, kernels and sums included."""
        one, other = self.make(unequal(100, 6, 16)), self.make(unequal(100, 6, 17))
        other.restore({name: tensor.clone() for name, tensor in one.state().items()})
        query = torch.from_numpy(unequal(5, 6, 18))
        assert torch.equal(one.masses(query), other.masses(query))
        assert torch.equal(drawn(one, query, 30), drawn(other, query, 30))

    def test_updates_in_any_order_equal_a_rebuild(self) -> None:
        """Bit for bit, in every mass and draw."""
        vectors, query = unequal(50, 4, 19), torch.from_numpy(unequal(6, 4, 20))
        updated = self.make(unequal(50, 4, 21))
        random = np.random.default_rng(22)
        for rows in np.split(random.permutation(50), [3, 20, 21]):
            updated.update(torch.from_numpy(rows), torch.from_numpy(vectors[rows]))
        anew = self.make(vectors)
        assert torch.equal(updated.masses(query), anew.masses(query))
        assert torch.equal(drawn(updated, query, 30), drawn(anew, query, 30))

    def test_log_probabilities_are_those_of_the_closed_form(self) -> None:
        """log K - log Z to 1e-4 for every item, from a catalog of one on; what is drawn are its rows."""
        for rows in (1, 2, 3, 17, 40):
            vectors, queries = unequal(rows, 5, rows), torch.from_numpy(unequal(3, 5, 99))
            sums, ids = self.make(vectors), torch.arange(rows).repeat(3, 1)
            log_q = (sums.kernels(queries, ids).log() - sums.masses(queries).log()[:, None]).numpy()
            for b in range(3):
                expected = np.log(shares(ALPHA, queries[b].numpy(), vectors))
                np.testing.assert_allclose(log_q[b], expected, atol=1e-4, rtol=0)
            ids = drawn(sums, queries, 20)
            assert int(ids.min()) >= 0
            assert int(ids.max()) < rows
