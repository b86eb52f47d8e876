"""FAISS's own files."""

from pathlib import Path

import faiss
import numpy as np
import pytest

from turret.tower.index.faiss_index.faiss_files import write_flat


@pytest.mark.parametrize("shape", [(1, 1), (77, 3), (1000, 64)])
def test_a_file_of_vectors_is_the_one_that_faiss_writes(tmp_path: Path, shape: tuple[int, int]) -> None:
    vectors = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    index = faiss.IndexFlatIP(shape[1])
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "theirs"))
    write_flat(vectors, tmp_path / "ours")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
