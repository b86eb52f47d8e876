import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.contracts.kernel_sums import ALPHA
from turret.training.errors import TrainingError
from turret.training.samplers.kernel.coded_sums import CodedSums
from turret.training.samplers.kernel.sums import KernelSums, TensorSums

CPU = torch.device("cpu")
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 9), st.integers(1, 12))
FORMS = ["coded", "tensors"]


def vectors_of(rows: int, width: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def built(form: str, vectors: NDArray[np.float32], block: int | None) -> KernelSums:
    rows, width = vectors.shape
    sums: KernelSums = CodedSums(rows, width, ALPHA, block)
    if form == "tensors":
        sums = TensorSums(rows, width, ALPHA, CPU, block)
    sums.update(torch.arange(rows), torch.from_numpy(vectors))
    return sums


def triangle(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of w w^T over the rows, its upper triangle row by row."""
    full = sum((np.outer(vector, vector) for vector in vectors), np.zeros((vectors.shape[1],) * 2))
    upper: NDArray[np.float64] = full[np.triu_indices(len(full))]
    return upper


@pytest.mark.parametrize("form", FORMS)
@given(shape=SHAPES)
@settings(max_examples=40, deadline=None)
def test_every_block_holds_the_sum_of_its_rows(form: str, shape: tuple[int, int, int]) -> None:
    """For any catalog from one item on, and any size of a block."""
    rows, width, block = shape
    vectors = vectors_of(rows, width, rows)
    sums = built(form, vectors, block)
    for position in range(sums.blocks):
        own = vectors[position * block : (position + 1) * block].astype(np.float64)
        np.testing.assert_allclose(sums._sums[position].numpy(), triangle(own), atol=1e-5)
    assert sums.blocks * block >= rows


@pytest.mark.parametrize("form", FORMS)
@given(shape=SHAPES, data=st.data())
@settings(max_examples=40, deadline=None)
def test_updates_in_any_order_equal_a_new_snapshot(
    form: str, shape: tuple[int, int, int], data: st.DataObject
) -> None:
    """Bit for bit."""
    rows, width, block = shape
    vectors = vectors_of(rows, width, rows)
    sums = built(form, vectors, block)
    batches = data.draw(
        st.lists(
            st.lists(st.integers(0, rows - 1), min_size=1, max_size=10, unique=True), min_size=1, max_size=4
        )
    )
    for number, batch in enumerate(batches):
        replaced = vectors_of(len(batch), width, 1000 + number)
        sums.update(torch.tensor(batch), torch.from_numpy(replaced))
        vectors[batch] = replaced
    anew, every = built(form, vectors, block), torch.arange(rows)
    assert torch.equal(sums._sums, anew._sums)
    assert torch.equal(sums._moments, anew._moments)
    assert torch.equal(sums.vectors(every), anew.vectors(every))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(15, 7, 9), (16, 9, 8), (40, 9, 9)])
def test_a_block_alone_is_summed_as_among_others(form: str, shape: tuple[int, int, int]) -> None:
    """Bit for bit, also where the blocks of an odd D begin within a cache line."""
    rows, width, block = shape
    vectors = vectors_of(rows, width, rows)
    sums = built(form, vectors, block)
    vectors[9] = vectors_of(1, width, 1000)
    sums.update(torch.tensor([9]), torch.from_numpy(vectors[9:10]))
    assert torch.equal(sums._sums, built(form, vectors, block)._sums)


@pytest.mark.parametrize("form", FORMS)
def test_an_update_sums_only_its_own_blocks(form: str) -> None:
    """Sums of blocks without the row are not written to."""
    sums = built(form, vectors_of(64, 3, 0), 2)
    before = sums._sums.clone()
    sums.update(torch.tensor([5]), torch.from_numpy(vectors_of(1, 3, 1)))
    assert (sums._sums != before).any(dim=1).nonzero()[:, 0].tolist() == [2]


def test_blocks_hold_about_sqrt_n_items_unless_said_otherwise() -> None:
    """At least D, so that the sums of a small catalog take no more memory than its vectors."""
    assert TensorSums(1_000_000, 8, ALPHA, CPU).block == 1000
    assert TensorSums(1000, 64, ALPHA, CPU).block == 64


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_a_vector_that_is_not_finite_is_refused_and_changes_nothing(form: str, value: float) -> None:
    """NaN, infinity, or a norm beyond float32: the row is named; the sums stay as they were."""
    vectors = vectors_of(20, 4, 0)
    sums = built(form, vectors, 3)
    before = sums._sums.clone()
    bad = vectors_of(3, 4, 1)
    bad[1, 1:3] = value
    with pytest.raises(TrainingError, match="item row 17"):
        sums.update(torch.tensor([3, 17, 4]), torch.from_numpy(bad))
    assert torch.equal(sums._sums, before)
    np.testing.assert_allclose(sums.vectors(torch.tensor([3])), vectors[3:4], atol=1e-6)
