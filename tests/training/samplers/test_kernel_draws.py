import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tests.contracts.samplers import chi_square_limit
from tests.oracles.quadratic_kernel import kernel, shares
from training.samplers.kernel_draws import KernelDraws
from training.samplers.kernel_tree import KernelTree

ALPHA = 100.0


def unequal(rows: int, width: int, seed: int, spread: float = 1.0) -> NDArray[np.float32]:
    """Vectors whose norms differ by orders of magnitude."""
    random = np.random.default_rng(seed)
    lengths = np.exp(spread * random.standard_normal((rows, 1)))
    return (random.standard_normal((rows, width)) * lengths / math.sqrt(width)).astype(np.float32)


def draws_of(vectors: NDArray[np.float32], leaf: int = 4, branching: int = 2, way: str = "") -> KernelDraws:
    tree = KernelTree(len(vectors), vectors.shape[1], leaf, branching)
    tree.rebuild(vectors)
    draws = KernelDraws(tree, ALPHA)
    draws.most_work = {"rejection": math.inf, "walk": 0.0}.get(way, draws.most_work)
    return draws


def drawn(draws: KernelDraws, query: Tensor, count: int, excluded: int = -1, seed: int = 7) -> Tensor:
    counts, left_out = torch.full((len(query),), count), torch.full((len(query),), excluded)
    return draws.draw(query, draws.masses(query), counts, left_out, seed).view(len(query), count)


def statistic(ids: Tensor, q: NDArray[np.float64]) -> tuple[float, float]:
    """The chi-square value of the ids, cells of few expected hits put together, and its limit."""
    order = np.argsort(q)
    found, expected = np.bincount(ids.numpy().ravel(), minlength=len(q))[order], (q * ids.numel())[order]
    cells = np.cumsum(expected) // 20
    found, expected = (
        np.bincount(np.unique(cells, return_inverse=True)[1], found),
        np.bincount(np.unique(cells, return_inverse=True)[1], expected),
    )
    full = expected > 5
    value = ((found - expected) ** 2 / np.maximum(expected, 1e-9))[full].sum()
    return float(value), chi_square_limit(max(int(full.sum()) - 1, 1))


@pytest.mark.parametrize("way", ["rejection", "walk"])
@pytest.mark.parametrize(("leaf", "branching"), [(1, 2), (4, 3), (7, 2), (100, 5)])
def test_draws_follow_the_kernel(way: str, leaf: int, branching: int) -> None:
    """40,000 draws against the closed form; one in a million right programs fails."""
    vectors = unequal(60, 6, 1)
    query = torch.from_numpy(unequal(1, 6, 2))
    ids = drawn(draws_of(vectors, leaf, branching, way), query.repeat(8, 1), 5000)
    q = shares(ALPHA, query[0].numpy(), vectors)
    value, limit = statistic(ids, q)
    assert value < limit
    # The test can tell: against the uniform proposal the same draws fail.
    value, limit = statistic(ids, np.full(60, 1 / 60))
    assert value > 100 * limit


@pytest.mark.parametrize("way", ["rejection", "walk"])
def test_each_place_of_a_draw_follows_the_kernel(way: str) -> None:
    """The first draw of an example is as any other, so that a part of a draw is a draw."""
    vectors = unequal(30, 4, 3)
    query = torch.from_numpy(unequal(1, 4, 4))
    ids = drawn(draws_of(vectors, way=way), query.repeat(20_000, 1), 3)
    for place in range(3):
        value, limit = statistic(ids[:, place], shares(ALPHA, query[0].numpy(), vectors))
        assert value < limit


@pytest.mark.parametrize("way", ["rejection", "walk"])
def test_draws_of_an_example_are_independent(way: str) -> None:
    """Pairs of draws follow the product of the shares."""
    vectors = unequal(6, 3, 5, spread=0.3)
    query = torch.from_numpy(unequal(1, 3, 6))
    ids = drawn(draws_of(vectors, leaf=1, way=way), query.repeat(30_000, 1), 2)
    q = shares(ALPHA, query[0].numpy(), vectors)
    value, limit = statistic(ids[:, 0] * 6 + ids[:, 1], np.outer(q, q).ravel())
    assert value < limit


@pytest.mark.parametrize("way", ["rejection", "walk"])
def test_a_row_can_be_left_out(way: str) -> None:
    """The others are then drawn with q_j / (1 - q_y), also when y had nearly all the mass."""
    vectors = unequal(40, 5, 8)
    vectors[11] *= 100.0
    query = torch.from_numpy(unequal(1, 5, 9))
    q = shares(ALPHA, query[0].numpy(), vectors)
    assert q[11] > 0.9
    ids = drawn(draws_of(vectors, way=way), query.repeat(4, 1), 8000, excluded=11)
    q[11] = 0.0
    assert not (ids == 11).any()
    value, limit = statistic(ids, q / q.sum())
    assert value < limit


@pytest.mark.parametrize("way", ["rejection", "walk"])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e15])
def test_extreme_queries_are_drawn_by(way: str, scale: float) -> None:
    """A query of no length draws uniformly; a huge one by the squared inner product alone."""
    vectors = unequal(20, 4, 10, spread=0.2)
    query = torch.from_numpy(unequal(1, 4, 11)) * scale
    ids = drawn(draws_of(vectors, way=way), query.repeat(4, 1), 5000)
    value, limit = statistic(ids, shares(ALPHA, query[0].numpy(), vectors))
    assert value < limit


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(1, 12), st.integers(2, 6)),
    st.floats(0.01, 100.0),
    st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_log_probabilities_are_those_of_the_closed_form(
    shape: tuple[int, int, int, int], alpha: float, seed: int
) -> None:
    """log K - log Z to 1e-4 for every item, for any catalogue and any tree; what is drawn are its rows."""
    rows, width, leaf, branching = shape
    vectors, queries = unequal(rows, width, seed), torch.from_numpy(unequal(3, width, seed + 1))
    draws = draws_of(vectors, leaf, branching)
    draws.alpha = alpha
    ids = torch.arange(rows).repeat(3, 1)
    log_q = (draws.kernels(queries, ids).log() - draws.masses(queries).log()[:, None]).numpy()
    for b in range(3):
        np.testing.assert_allclose(
            log_q[b], np.log(shares(alpha, queries[b].numpy(), vectors)), atol=1e-4, rtol=0
        )
    assert set(drawn(draws, queries, 20).unique().tolist()) <= set(range(rows))


def test_a_query_at_right_angles_to_all_items_is_as_good_as_any() -> None:
    """Z is then the count of items alone; sums in float32 would leave a rest of alpha |h|^2 |w|^2 1e-7."""
    vectors = np.zeros((500, 3), np.float32)
    vectors[:, 0] = 30.0
    vectors[:, 1] = np.float32(0.1)
    query = torch.tensor([[-0.1, 30.0, 0.0]])
    draws = draws_of(vectors)
    exact = sum(kernel(ALPHA, query[0].tolist(), vector) for vector in vectors.tolist())
    assert draws.masses(query).item() == pytest.approx(exact, rel=1e-4)


def test_what_is_drawn_does_not_depend_on_threads() -> None:
    """The seed and the example decide alone."""
    vectors, queries = unequal(300, 8, 12), torch.from_numpy(unequal(64, 8, 13))
    draws, threads, ids = draws_of(vectors), torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            ids.append(drawn(draws, queries, 9))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(ids[0], ids[1])
    assert torch.equal(ids[0], ids[2])
    assert not torch.equal(ids[0], drawn(draws, queries, 9, seed=8))


def test_examples_draw_as_many_as_they_are_asked_for() -> None:
    """Also none."""
    draws = draws_of(unequal(50, 4, 14))
    query = torch.from_numpy(unequal(3, 4, 15))
    counts = torch.tensor([2, 0, 5])
    assert len(draws.draw(query, draws.masses(query), counts, torch.full((3,), -1), 1)) == 7


def test_what_is_cheaper_is_chosen() -> None:
    """Even vectors are drawn by rejection; a query with one strong item among many, down the tree."""
    even = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
    even /= np.linalg.norm(even, axis=1, keepdims=True)
    peaked = even * np.float32(1e-3)
    peaked[123] *= 1e4
    query = torch.from_numpy(even[123:124])
    for vectors, way in ((even, "rejection"), (peaked, "walk")):
        chosen = drawn(draws_of(vectors, leaf=32), query, 50)
        assert torch.equal(chosen, drawn(draws_of(vectors, leaf=32, way=way), query, 50))
        other = {"walk": "rejection", "rejection": "walk"}[way]
        assert not torch.equal(chosen, drawn(draws_of(vectors, leaf=32, way=other), query, 50))


def test_a_restored_state_draws_the_same() -> None:
    """Bit for bit, kernels and sums included."""
    one, other = draws_of(unequal(100, 6, 16)), draws_of(unequal(100, 6, 17))
    other.restore({name: tensor.clone() for name, tensor in one.state().items()})
    query = torch.from_numpy(unequal(5, 6, 18))
    assert torch.equal(one.masses(query), other.masses(query))
    assert torch.equal(drawn(one, query, 30), drawn(other, query, 30))
