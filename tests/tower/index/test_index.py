from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.full_disk import small_files
from turret.tower.errors import BundleError
from turret.tower.index.index import ExactIndex


def by_sorting(
    vectors: NDArray[np.float32], query: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]
) -> list[int]:
    scores = [float(np.dot(vector, query)) for vector in vectors]
    order = sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-scores[row], row))
    return order[:k]


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_search_is_a_stable_sort_of_the_allowed_rows(seed: int, count: int, k: int, share: float) -> None:
    """Small integers as coordinates make many exact ties, and sums without rounding."""
    generator = np.random.default_rng(seed)
    vectors = generator.integers(-1, 2, (count, 3)).astype(np.float32)
    queries = generator.integers(-2, 3, (2, 3)).astype(np.float32)
    allowed = generator.random(count) < share
    rows, scores = ExactIndex.build(vectors).search(queries, k, allowed)
    assert rows.shape == scores.shape == (2, min(k, int(allowed.sum())))
    for query, found in zip(queries, rows, strict=True):
        assert found.tolist() == by_sorting(vectors, query, k, allowed)


def test_a_tie_across_the_cut_keeps_the_lowest_rows() -> None:
    vectors = np.tile(np.array([[0.3, -0.7, 0.2, 0.9, 0.1]], np.float32), (700, 1))
    rows, _ = ExactIndex.build(vectors).search(vectors[:1], 5)
    assert rows.tolist() == [[0, 1, 2, 3, 4]]


def test_everything_is_allowed_when_nothing_is_said() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    index = ExactIndex.build(vectors)
    everything = np.ones(50, dtype=np.bool_)
    assert np.array_equal(index.search(vectors, 7)[0], index.search(vectors, 7, everything)[0])
    assert index.search(vectors, 99)[0].shape == (50, 50)


def test_a_query_gets_the_same_answer_alone_and_in_a_batch() -> None:
    vectors = np.random.default_rng(1).standard_normal((500, 16)).astype(np.float32)
    index = ExactIndex.build(vectors)
    together = index.search(vectors[:64], 10)[1]
    alone = np.concatenate([index.search(vectors[place : place + 1], 10)[1] for place in range(64)])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_refused_instead_of_finding_row_minus_one(bad: float) -> None:
    index = ExactIndex.build(np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="finite"):
        index.search(np.array([[bad, 0, 0]], np.float32), 1)


def test_k_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="k = 0"):
        ExactIndex.build(np.eye(3, dtype=np.float32)).search(np.ones((1, 3), np.float32), 0)


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).standard_normal((9, 4)).astype(np.float32)
    ExactIndex.build(vectors).save(tmp_path / "index")
    loaded = ExactIndex.load(tmp_path / "index", vectors)
    assert (len(loaded), loaded.dimension, loaded.is_exact) == (9, 4, True)
    assert np.array_equal(loaded.vectors(), vectors)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"IxFI" + b"\xff" * 60])
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(BundleError, match="not a FAISS index"):
        ExactIndex.load(path, np.eye(4, dtype=np.float32))


def test_a_header_that_asks_for_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    """FAISS would allocate up to a terabyte before it looks whether the bytes are there."""
    path = tmp_path / "index"
    ExactIndex.build(np.eye(4, dtype=np.float32)).save(path)
    content = bytearray(path.read_bytes())
    place = content.rindex((16).to_bytes(8, "little"))  # the number of floats that follow
    content[place : place + 8] = (2**20).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(BundleError, match="not a FAISS index"):
        ExactIndex.load(path, np.eye(4, dtype=np.float32))
    assert faiss.get_deserialization_vector_byte_limit() == len(content)


def test_another_kind_of_index_is_refused(tmp_path: Path) -> None:
    faiss.write_index(faiss.IndexFlatL2(4), str(tmp_path / "index"))
    with pytest.raises(BundleError, match="IndexFlatL2"):
        ExactIndex.load(tmp_path / "index", np.eye(4, dtype=np.float32))


def test_an_index_that_the_disk_can_not_take_is_refused(tmp_path: Path) -> None:
    """FAISS raises a plain RuntimeError."""
    index = ExactIndex.build(np.ones((1000, 4), dtype=np.float32))
    with (
        small_files(8000),
        pytest.raises(BundleError, match=rf"^{tmp_path}/i: the index can't be written .*room"),
    ):
        index.save(tmp_path / "i")
